"""Brings the database's tables to this version, before services start."""
