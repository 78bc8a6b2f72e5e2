"""Blobs as objects in a bucket of an S3-compatible store, with any engine for chats."""
