"""Evaluation: agents asked the same cases, what they did checked, and the results compared."""
