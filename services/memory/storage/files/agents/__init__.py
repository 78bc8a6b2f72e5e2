"""Agents in a folder."""
