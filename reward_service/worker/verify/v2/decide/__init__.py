"""Whether two meanings are equal."""
