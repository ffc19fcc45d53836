"""Expressions and what can be computed of them: exactly, modulo primes, in arbitrary precision."""
