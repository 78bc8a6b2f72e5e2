"""Runs all services on this machine."""
