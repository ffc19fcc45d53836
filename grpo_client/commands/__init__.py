"""The commands of `grpo-client`, one file each: `main(arguments)` returns the exit code and raises HallmarkError."""
