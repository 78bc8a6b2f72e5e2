"""Creates virtual environments of skills with requirements, once per content.

They are below data_dir/skill_envs/, which commands may read. Only wheels are installed, so no package's code runs
outside the sandbox. An environment without its mark, which is written last, is created again.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import structlog

from headrace.errors import SkillUnavailable
from headrace.regular_files import read_regular_file
from services.tools.skills.skill_folder import Skill

REQUIREMENTS = "requirements.txt"

REQUIREMENTS_BYTES_MAX = 64 * 1024

MAKE_S = 300.0
"""Time to wait for another process's environment and to create one, together."""

RETRY_S = 60.0
"""How long a failure is remembered, so that not every mention triggers another failed installation."""

LOOK_S = 0.1

SAID_CHARS_MAX = 300

MARK = ".ready"

OWN = os.path.realpath(sys.executable)
"""Real path of our Python, because a virtual environment's is a link to a place that commands may not read."""

log = structlog.get_logger()


class SkillEnvironments:
    """Environments of skills, created in tasks of `group`; processes may share the folder."""

    def __init__(self, root: Path, group: asyncio.TaskGroup) -> None:
        self.root = root.absolute()
        self._group = group
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._failures: dict[str, tuple[float, str]] = {}

    async def find_interpreter(self, skill: Skill) -> str:
        """Return the skill's interpreter, creating its environment if necessary. Raises SkillUnavailable."""
        text = await asyncio.to_thread(_read_requirements, skill)
        if not text:
            return OWN
        digest = hashlib.sha256(f"{sys.version}\n{sys.base_prefix}\n{text}".encode()).hexdigest()
        folder = self.root / f"{skill.id}-{digest[:16]}"
        if not (folder / MARK).is_file():
            failed_at, problem = self._failures.get(folder.name, (0.0, ""))
            if not problem or asyncio.get_running_loop().time() - failed_at >= RETRY_S:
                problem = await self._wait_made(skill, folder)
            if problem:
                raise _make_error(skill, problem)
        return str(folder / "bin" / "python")

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _wait_made(self, skill: Skill, folder: Path) -> str:
        # The task continues after a caller leaves, because others may wait for it too.
        task = self._tasks.get(folder.name)
        if task is None:
            task = self._tasks[folder.name] = self._group.create_task(self._make_environment(skill, folder))
            task.add_done_callback(lambda _: self._tasks.pop(folder.name))
        await asyncio.wait([task])
        return task.result()

    async def _make_environment(self, skill: Skill, folder: Path) -> str:
        try:
            async with asyncio.timeout(MAKE_S), _hold_lock(folder.with_suffix(".lock")):
                if not (folder / MARK).is_file():  # another process may have made it while we waited
                    await _install_requirements(skill, folder)
            return ""
        except TimeoutError:
            problem = f"it took longer than {MAKE_S:g} s"
        except (_StepFailed, OSError) as failure:
            problem = str(failure)
        self._failures[folder.name] = (asyncio.get_running_loop().time(), problem)
        log.error("skill dependencies failed", skill=skill.id, problem=problem)
        return problem


class _StepFailed(Exception):
    """A step failed; the text explains it."""


def _make_error(skill: Skill, problem: str) -> SkillUnavailable:
    return SkillUnavailable(f"the dependencies of skill {skill.id!r} cannot be installed: {problem}", skillId=skill.id)


def _read_requirements(skill: Skill) -> str:
    """Return the requirements; empty if the file is missing, or has only comments."""
    try:
        text = read_regular_file(skill.folder / REQUIREMENTS, REQUIREMENTS_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _make_error(skill, f"{REQUIREMENTS}: {error.strerror}") from error
    return text if any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()) else ""


@asynccontextmanager
async def _hold_lock(path: Path) -> AsyncGenerator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOOK_S)
        yield
    finally:
        os.close(fd)


async def _install_requirements(skill: Skill, folder: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check")
    try:
        await _run_step(skill, sys.executable, "-m", "venv", "--without-pip", str(folder))
        await _run_step(skill, *pip, "install", "--quiet", "--no-input", "--only-binary=:all:", "-r", REQUIREMENTS)
        await asyncio.to_thread((folder / MARK).touch)
        log.info("skill dependencies installed", skill=skill.id)
    finally:
        if not (folder / MARK).is_file():
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _run_step(skill: Skill, *command: str) -> None:
    # The program has our environment, where pip is configured; leaving kills it.
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=skill.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if status != 0:
            raise _StepFailed(_find_complaint(output))


def _find_complaint(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - 8192))
    lines = output.read().decode(errors="replace").split("\n")
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return ("; ".join(errors) or next((line for line in reversed(lines) if line.strip()), "no reason given"))[
        :SAID_CHARS_MAX
    ]
