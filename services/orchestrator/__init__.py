"""Runs agents: definitions, model turns, tools, events, control."""
