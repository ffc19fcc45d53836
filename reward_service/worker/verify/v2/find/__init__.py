"""Where the answer stands in a completion."""
