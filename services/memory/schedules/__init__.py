"""Schedules: their due times, and the outcomes."""
