"""Tests mirror the packages: one file a module."""
