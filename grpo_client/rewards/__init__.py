"""The reward service's client, and what becomes of completions without a score."""
