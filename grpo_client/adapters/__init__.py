"""Rewards of a service for other trainers. What is here needs `pip install hallmark-rl` and no extra."""
