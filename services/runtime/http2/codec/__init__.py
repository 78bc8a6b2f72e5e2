"""Frames, header blocks, metadata and statuses as bytes, without the state of a connection."""
