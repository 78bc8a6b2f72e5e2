"""Holds the folders that a chat's tools share."""
