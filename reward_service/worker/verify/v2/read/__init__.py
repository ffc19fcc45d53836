"""From an answer's text to an expression."""
