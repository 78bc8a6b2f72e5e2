"""A run that goes on here is replayed from its recording."""
