"""Replays cassettes: the real orchestrator runs against a model, tools and memory that give recorded answers."""
