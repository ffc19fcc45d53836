"""The processes that score, seen from the serving one: work out, results back, a clock on every unit."""
