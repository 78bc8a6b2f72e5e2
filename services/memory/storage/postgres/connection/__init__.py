"""Connections to the database: the pool, its servers, and whether they can be reached."""
