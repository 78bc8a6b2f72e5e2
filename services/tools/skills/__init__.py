"""Skills: folders skills/<id>/ with a SKILL.md, in the open Agent Skills form (https://agentskills.io).

skill_folder.py lists those of the configuration (skill.py reads one). linker.py brings one into a chat's workspace as
a copy (copies.py), with an interpreter that has its dependencies (environments.py).
"""
