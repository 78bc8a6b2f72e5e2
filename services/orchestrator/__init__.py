"""Runs agents."""
