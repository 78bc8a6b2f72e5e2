"""Bugs around the services, each of which the judges must find."""
