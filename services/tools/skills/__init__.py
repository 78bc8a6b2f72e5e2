"""Offers skills, folders skills/<id>/ with a SKILL.md in the Agent Skills format (https://agentskills.io)."""
