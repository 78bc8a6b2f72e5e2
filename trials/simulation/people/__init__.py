"""People who use a simulated world's services, and what they were told."""
