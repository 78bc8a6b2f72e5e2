"""What the service keeps of people: read as an archive, and deleted."""
