"""Audit logs in a database."""
