"""Counts of tokens, and facts about models."""
