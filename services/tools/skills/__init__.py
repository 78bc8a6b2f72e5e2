"""Offers skills, folders skills/<id>/ with a SKILL.md in the Agent Skills form (https://agentskills.io).

skill_folder.py lists them (skill.py reads one). linker.py brings one into a workspace as a copy (copies.py), with an
interpreter that has its dependencies (environments.py).
"""
