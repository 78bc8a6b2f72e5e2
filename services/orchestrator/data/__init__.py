"""Data of people: archives of it, and its erasure in all services."""
