from __future__ import annotations

import asyncio
import os
import shlex

from headrace.errors import HeadraceError, NotFound, SkillUnavailable
from headrace.v1 import tools_pb2
from services.tools.skills.copies import FOLDER, INTERPRETER, place_copy, read_files
from services.tools.skills.environments import SkillEnvironments
from services.tools.skills.skill import FILE, Skill
from services.tools.skills.skill_folder import SkillFolder
from services.tools.workspace.blocking import run_to_end
from services.tools.workspace.workspace import Workspaces


class SkillLinker:
    def __init__(self, shelf: SkillFolder, environments: SkillEnvironments, workspaces: Workspaces) -> None:
        self._shelf = shelf
        self._environments = environments
        self._workspaces = workspaces

    async def list_skills(self) -> list[Skill]:
        return await asyncio.to_thread(self._shelf.list_skills)

    async def link_skill(self, request: tools_pb2.LinkSkillRequest) -> tools_pb2.LinkSkillResponse:
        """Puts the skill into the workspace, anew if it has changed.

        Raises:
            NotFound: No skill has this id.
            SkillUnavailable: It is broken, its dependencies cannot be installed, or the workspace has no room.
        """
        skill = await asyncio.to_thread(self._shelf.find_skill, request.skill_id)
        if skill is None:
            raise NotFound(f"skill {request.skill_id!r} does not exist", skillId=request.skill_id)
        if skill.problem:
            raise SkillUnavailable(f"skill {skill.id!r} cannot be used: {skill.problem}", skillId=skill.id)
        interpreter = await self._environments.find_interpreter(skill)
        await run_to_end(lambda: self._place_copy(skill, request.chat_id, interpreter))
        return tools_pb2.LinkSkillResponse(path=find_path(skill), interpreter=f"{FOLDER}/{skill.id}/{INTERPRETER}")

    def _place_copy(self, skill: Skill, chat_id: str, interpreter: str) -> None:
        launcher = f'#!/bin/sh\nexec {shlex.quote(interpreter)} "$@"\n'
        try:
            place_copy(self._workspaces, chat_id, skill.id, read_files(skill.folder, skill.text, launcher))
        except HeadraceError:
            raise
        except OSError as error:
            problem = error.strerror or os.strerror(error.errno or 0)
            raise SkillUnavailable(f"skill {skill.id!r} cannot be linked: {problem}", skillId=skill.id) from error
        except ValueError as error:
            raise SkillUnavailable(f"skill {skill.id!r} cannot be linked: {error}", skillId=skill.id) from error


def to_message(skill: Skill) -> tools_pb2.Skill:
    return tools_pb2.Skill(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        file_types=skill.file_types,
        path=find_path(skill),
        unavailable=skill.problem or None,
    )


def find_path(skill: Skill) -> str:
    return f"{FOLDER}/{skill.id}/{FILE}"
