"""Bringing a skill into a chat's workspace, ready to be used there."""

from __future__ import annotations

import asyncio
import os
import shlex

from headrace.errors import HeadraceError, NotFound, SkillUnavailable
from headrace.v1 import tools_pb2
from services.tools.skills.copies import FOLDER, INTERPRETER, place, read_files
from services.tools.skills.environments import Environments
from services.tools.skills.skill import FILE, Skill
from services.tools.skills.skill_folder import Shelf
from services.tools.workspace.blocking import to_end
from services.tools.workspace.workspace import Workspaces


class Linker:
    """Links skills; one for the service."""

    def __init__(self, shelf: Shelf, environments: Environments, workspaces: Workspaces) -> None:
        self._shelf = shelf
        self._environments = environments
        self._workspaces = workspaces

    async def skills(self) -> list[Skill]:
        """All skills, ordered by id, with those that cannot be used."""
        return await asyncio.to_thread(self._shelf.skills)

    async def link(self, request: tools_pb2.LinkSkillRequest) -> tools_pb2.LinkSkillResponse:
        """Have the skill in the chat's workspace.

        Raises:
            NotFound: No skill has this id.
            SkillUnavailable: It is broken, its dependencies cannot be installed, or the workspace has no room.
        """
        skill = await asyncio.to_thread(self._shelf.find, request.skill_id)
        if skill is None:
            raise NotFound(f"skill {request.skill_id!r} does not exist", skillId=request.skill_id)
        if skill.problem:
            raise SkillUnavailable(f"skill {skill.id!r} cannot be used: {skill.problem}", skillId=skill.id)
        interpreter = await self._environments.interpreter(skill)
        await to_end(lambda: self._place(skill, request.chat_id, interpreter))
        return tools_pb2.LinkSkillResponse(path=path_of(skill), interpreter=f"{FOLDER}/{skill.id}/{INTERPRETER}")

    def _place(self, skill: Skill, chat_id: str, interpreter: str) -> None:
        launcher = f'#!/bin/sh\nexec {shlex.quote(interpreter)} "$@"\n'
        try:
            place(self._workspaces, chat_id, skill.id, read_files(skill.folder, launcher))
        except HeadraceError:
            raise
        except OSError as error:
            problem = error.strerror or os.strerror(error.errno or 0)
            raise SkillUnavailable(f"skill {skill.id!r} cannot be linked: {problem}", skillId=skill.id) from error
        except ValueError as error:
            raise SkillUnavailable(f"skill {skill.id!r} cannot be linked: {error}", skillId=skill.id) from error


def message(skill: Skill) -> tools_pb2.Skill:
    return tools_pb2.Skill(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        file_types=skill.file_types,
        path=path_of(skill),
        unavailable=skill.problem or None,
    )


def path_of(skill: Skill) -> str:
    """Where its SKILL.md is, in a workspace it is linked into."""
    return f"{FOLDER}/{skill.id}/{FILE}"
