"""Copies skills into a workspace, again whenever they differ from the original.

File tools do not follow links out of a workspace, and a bind mount needs privileges. A command can change a copy, but
only in its own chat.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from contextlib import suppress
from pathlib import Path

from headrace.errors import NotFound, SkillUnavailable
from headrace.regular_files import read_regular_file
from headrace.v1 import tools_pb2
from services.tools.sandbox.supervisor.kernel import open_beneath
from services.tools.sandbox.supervisor.sweep import remove_tree
from services.tools.skills.environments import SkillEnvironments
from services.tools.skills.skill_folder import FILE, Skill, SkillFolder
from services.tools.workspace.file_work import run_to_end
from services.tools.workspace.workspace import Workspace, Workspaces

FOLDER = "skills"

FILES_MAX = 500
BYTES_MAX = 20 * 1024 * 1024
"""Maximum size of a skill; each chat that uses it has a copy."""

INTERPRETER = "python"
"""Program next to SKILL.md that runs Python with the skill's dependencies."""


class SkillLinker:
    def __init__(self, shelf: SkillFolder, environments: SkillEnvironments, workspaces: Workspaces) -> None:
        self._shelf = shelf
        self._environments = environments
        self._workspaces = workspaces

    async def list_skills(self) -> list[tools_pb2.Skill]:
        return [
            tools_pb2.Skill(
                id=skill.id,
                name=skill.name,
                description=skill.description,
                file_types=skill.file_types,
                path=find_path(skill),
                unavailable=skill.problem or None,
            )
            for skill in await asyncio.to_thread(self._shelf.list_skills)
        ]

    async def link_skill(self, request: tools_pb2.LinkSkillRequest) -> tools_pb2.LinkSkillResponse:
        """Copy the skill into the workspace, again if it has changed.

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
        except (OSError, ValueError) as error:
            problem = str(error)
            if isinstance(error, OSError):
                problem = error.strerror or os.strerror(error.errno or 0)
            raise SkillUnavailable(f"skill {skill.id!r} cannot be linked: {problem}", skillId=skill.id) from error


def find_path(skill: Skill) -> str:
    return f"{FOLDER}/{skill.id}/{FILE}"


def read_files(folder: Path, text: bytes, launcher: str) -> dict[str, tuple[bytes, bool]]:
    """Return by path the content and whether it is a program, with `text` as SKILL.md, plus the `launcher`.

    Hidden files are skipped; they belong to editors, git or a mounted ConfigMap.
    """
    files = {INTERPRETER: (launcher.encode(), True), FILE: (text, False)}
    room = BYTES_MAX - len(text)
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        for name in sorted(name for name in names if name[0] != "."):
            path = Path(where, name)
            relative = str(path.relative_to(folder))
            if relative == FILE:
                continue
            if relative == INTERPRETER:
                raise ValueError(f"a file of a skill cannot be named {INTERPRETER!r}: it is the interpreter's place")
            if len(files) >= FILES_MAX or path.stat().st_size > room:
                raise ValueError(f"a skill has at most {FILES_MAX} files and {BYTES_MAX} bytes")
            try:
                data = read_regular_file(path, room)
            except OSError as error:
                raise ValueError(f"{relative}: {error.strerror}") from error
            room -= len(data)
            files[relative] = (data, os.access(path, os.X_OK))
    return files


def place_copy(workspaces: Workspaces, chat_id: str, skill_id: str, files: dict[str, tuple[bytes, bool]]) -> None:
    workspace = workspaces.open_workspace(chat_id)
    with workspace.lock:
        if _is_current(workspace, skill_id, files):
            return
        with workspace.open_root() as root_fd:
            workspace.check_room(root_fd, sum(len(data) for data, _ in files.values()))
        aside = workspaces.make_incoming_folder() / f"skill-{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            _write_files(aside / "made", files)
            with workspace.open_root() as root_fd:
                _swap_in(root_fd, skill_id, aside)
        finally:
            # Not by rmtree, which waits at a pipe, if one was in the skill's place (Python 3.11).
            with suppress(OSError):  # it stays, out of everybody's way
                remove_tree(str(aside))


def _is_current(workspace: Workspace, skill_id: str, files: dict[str, tuple[bytes, bool]]) -> bool:
    base = f"{FOLDER}/{skill_id}"
    try:
        present = workspace.list_files(base, len(files))
        if {file.path: file.size_bytes for file in present} != {
            f"{base}/{path}": len(data) for path, (data, _) in files.items()
        }:
            return False
        for path, (data, _) in files.items():
            with workspace.open_file(f"{base}/{path}") as fd, open(fd, "rb", closefd=False) as file:
                if file.read(BYTES_MAX) != data:
                    return False
        return True
    except (OSError, ValueError):  # whatever is there, it is not the skill
        return False


def _write_files(folder: Path, files: dict[str, tuple[bytes, bool]]) -> None:
    folder.mkdir()
    for path, (data, is_program) in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / path, "xb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o500 if is_program else 0o400)


def _swap_in(root_fd: int, skill_id: str, aside: Path) -> None:
    with suppress(FileExistsError):
        os.mkdir(FOLDER, dir_fd=root_fd)
    skills_fd = open_beneath(root_fd, FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(FileNotFoundError):
            os.rename(skill_id, aside / "before", src_dir_fd=skills_fd)
        os.rename(aside / "made", skill_id, dst_dir_fd=skills_fd)
    finally:
        os.close(skills_fd)
