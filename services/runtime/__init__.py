"""What every server needs and nothing of the domain."""
