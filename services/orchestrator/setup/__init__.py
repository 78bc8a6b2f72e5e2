"""The start of a run, before its first turn: prompts, tools, skills, uploads, the chat's preferences."""
