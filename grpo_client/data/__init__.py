"""From files and data sets to prompts, and the order in which a run takes them."""
