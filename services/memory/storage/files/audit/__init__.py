"""Audit logs in a folder."""
