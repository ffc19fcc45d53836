"""The arithmetic of GRPO: advantages, batches, losses, schedules. No tensor library is imported here."""
