"""Agents in tables."""
