"""Backups into a bucket, and out of it."""
