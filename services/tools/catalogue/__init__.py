"""Knows the tools in force."""
