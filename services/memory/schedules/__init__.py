"""Schedules: when they are due, and what became of their times."""
