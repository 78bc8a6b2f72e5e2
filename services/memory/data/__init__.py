"""Users' stored data: archives, erasure and legal holds."""
