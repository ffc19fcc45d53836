"""What runs in the worker processes: rewards and verification. The serving process imports none of it but `frames`."""
