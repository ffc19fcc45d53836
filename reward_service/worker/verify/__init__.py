"""Engines of verification, one folder a version. A reward uses exactly one; only they import math_verify and sympy."""
