"""Admission of queries."""
