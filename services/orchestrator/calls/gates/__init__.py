"""Calls that wait for people."""
