"""What a run leaves on the disk and resumes from."""
