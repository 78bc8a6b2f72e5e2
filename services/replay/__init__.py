"""Replays cassettes: the real orchestrator before model, tools and memory that say what was recorded."""
