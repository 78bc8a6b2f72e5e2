"""Unused folders, on a real file system. A folder's change time cannot be set back, so the tests vary `days`."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from headrace.errors import Overloaded
from services.tools.config import Config
from services.tools.execution.effect_records import EffectRecords
from services.tools.workspace.retention import DAY_S, GOING, remove_older, remove_unused
from services.tools.workspace.workspace import Workspaces
from tests.support.tools.suite import CHAT

OTHER = CHAT[:-1] + "3"
NOW = -1.0
"""Days: what was used until now is unused."""


def test_only_folders_unused_for_the_retention_time_are_removed(tmp_path: Path) -> None:
    workspaces, effects = Workspaces(tmp_path / "workspaces"), EffectRecords(tmp_path / "effects")
    workspaces.open_workspace(CHAT).write_file("outputs/deep/a", b"text")
    effects.record_start(CHAT, "key", "tool")
    (workspaces.root / "notes").mkdir()
    time.sleep(0.05)
    used = time.time()
    time.sleep(0.05)
    workspaces.open_workspace(OTHER)
    roots = (workspaces.root, effects.root, workspaces.owners.root, tmp_path / "missing")
    assert remove_older(roots, 7) == 0
    assert remove_older(roots, (time.time() - used) / DAY_S) == 3
    assert {path.name for path in workspaces.root.iterdir()} == {OTHER, "notes", ".owners"}
    assert [path.name for path in workspaces.owners.root.iterdir()] == [OTHER]
    assert list(effects.root.iterdir()) == []


def test_opening_a_workspace_counts_as_use_whatever_mtime_a_command_sets(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    folder = workspaces.open_workspace(CHAT).folder
    time.sleep(0.05)
    used = time.time()
    time.sleep(0.05)
    workspaces.find_workspace(CHAT)
    os.utime(folder, (0, 0))
    assert remove_older([tmp_path], (time.time() - used) / DAY_S) == 0
    assert folder.exists()


def test_nothing_outside_is_removed_or_changed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    outside.chmod(0o500)
    workspace = Workspaces(tmp_path / "workspaces").open_workspace(CHAT)
    (workspace.folder / "link").symlink_to(outside)
    (tmp_path / "workspaces" / OTHER).symlink_to(outside)
    remove_older([tmp_path / "workspaces"], NOW)
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_read_only_folders_are_removed_too(tmp_path: Path) -> None:
    folder = Workspaces(tmp_path).open_workspace(CHAT).folder / "skills"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/SKILL.md").touch()
    for path in (folder / "deep", folder):
        path.chmod(0o500)
    assert remove_older([tmp_path], NOW) == 1
    assert [path.name for path in tmp_path.iterdir()] == [".owners"]


@pytest.mark.parametrize("depth", [1, 3000])
def test_a_tree_of_any_depth_is_removed_and_so_is_the_next_one(tmp_path: Path, depth: int) -> None:
    fd = os.open(Workspaces(tmp_path).open_workspace(CHAT).folder, os.O_RDONLY)
    for number in range(depth):  # as a command does it, in which no path is too long
        os.mkdir("a", dir_fd=fd)
        below = os.open("a", os.O_RDONLY, dir_fd=fd)
        os.close(os.open(f"file {number}", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.symlink("a", "link", dir_fd=below)
        os.fchmod(fd, 0o500)
        os.close(fd)
        fd = below
    os.close(fd)
    Workspaces(tmp_path).open_workspace(OTHER)
    assert remove_older([tmp_path], NOW) == 2
    assert [path.name for path in tmp_path.iterdir()] == [".owners"]


def test_an_interrupted_removal_is_completed(tmp_path: Path) -> None:
    (tmp_path / f"{GOING}{CHAT}/outputs").mkdir(parents=True)
    assert remove_older([tmp_path], 7) == 1
    assert list(tmp_path.iterdir()) == []


async def test_removal_runs_at_startup_and_survives_an_unreadable_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Workspaces(tmp_path / "workspaces").open_workspace(CHAT)
    with structlog.testing.capture_logs() as logged:
        daily = asyncio.create_task(remove_unused((tmp_path / "workspaces", tmp_path / "file"), NOW, _read_none))
        async with asyncio.timeout(50):
            while not logged:
                await asyncio.sleep(0.01)
        daily.cancel()
        with pytest.raises(asyncio.CancelledError):
            await daily
    assert [entry["folders"] for entry in logged] == [1]


async def _read_none() -> Callable[[str], bool]:
    return lambda _: False


def test_chats_under_a_hold_are_not_removed(tmp_path: Path) -> None:
    Workspaces(tmp_path / "workspaces").open_workspace(CHAT)
    roots = [tmp_path / "workspaces", tmp_path / "workspaces" / ".owners"]
    assert remove_older(roots, NOW, lambda chat_id: chat_id == CHAT) == 0
    assert remove_older(roots, NOW) == 2


async def test_nothing_is_removed_while_memory_cannot_list_the_holds(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "workspaces")
    workspaces.open_workspace(CHAT)
    is_asked = asyncio.Event()

    async def fail() -> Callable[[str], bool]:
        is_asked.set()
        raise Overloaded("memory is away")

    daily = asyncio.create_task(remove_unused((workspaces.root,), NOW, fail))
    async with asyncio.timeout(50):
        await is_asked.wait()
    await asyncio.sleep(0)
    daily.cancel()
    await asyncio.wait([daily])
    assert (workspaces.root / CHAT).is_dir()


def test_a_retention_of_zero_days_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Config(workspace_retention_days=0)
