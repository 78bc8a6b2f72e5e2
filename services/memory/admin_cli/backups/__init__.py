"""Backups to and from a bucket."""
