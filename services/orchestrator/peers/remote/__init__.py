"""The client of A2A 1.0: agents elsewhere, their cards, and their tasks."""
