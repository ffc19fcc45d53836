"""Engines of verification, one folder a version. A reward uses exactly one; only v1 imports math_verify and sympy."""
