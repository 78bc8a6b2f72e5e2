"""Connections to the database: the pool, its servers, and their availability."""
