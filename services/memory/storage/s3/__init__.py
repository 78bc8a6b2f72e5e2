"""Blobs as objects of a bucket of an S3-compatible store, beside any engine of chats."""
