"""The folders that a chat's tools share."""
