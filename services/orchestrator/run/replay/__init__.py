"""What the log holds of a run that goes on here, and what readers lost of it."""
