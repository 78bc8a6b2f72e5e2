"""What is kept of people: read as an archive, erased, and held."""
