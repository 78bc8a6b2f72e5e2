"""What a run finds out before its first turn: prompts, tools, skills, uploads, the chat's preferences."""
