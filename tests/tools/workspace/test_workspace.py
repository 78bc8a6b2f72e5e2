"""Workspaces on a real file system, with paths that try to leave them."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from services.tools.workspace.file_work import run_to_end
from services.tools.workspace.quota import WorkspaceFull
from services.tools.workspace.workspace import Workspace, Workspaces

CHAT = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "secret").write_text("secret")
    found = Workspaces(tmp_path / "workspaces").open_workspace(CHAT)
    (found.folder / "out").symlink_to(tmp_path)
    (found.folder / "leak").symlink_to(tmp_path / "secret")
    return found


ESCAPES = ("../../secret", "/etc/passwd", "out/secret", "leak", "uploads/../../../secret", "/proc/self/environ")


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_reads_outside(workspace: Workspace, path: str) -> None:
    with pytest.raises(OSError, match="cross-device"), workspace.open_file(path):
        pass


@pytest.mark.parametrize("path", ["../../made", "/tmp/headrace-made", "out/made", "out/deep/made", "../x/made"])
def test_no_path_writes_outside(workspace: Workspace, path: str) -> None:
    before = sorted(workspace.folder.parent.parent.rglob("*"))
    with pytest.raises((OSError, ValueError)):
        workspace.write_file(path, b"made")
    assert sorted(workspace.folder.parent.parent.rglob("*")) == before
    assert not Path("/tmp/headrace-made").exists()


def test_a_link_to_the_outside_is_replaced_not_followed(workspace: Workspace) -> None:
    workspace.write_file("leak", b"mine")
    assert (workspace.folder / "leak").read_bytes() == b"mine"
    assert (workspace.folder.parent.parent / "secret").read_text() == "secret"


def test_links_within_the_workspace_work(workspace: Workspace) -> None:
    workspace.write_file("uploads/a", b"text")
    (workspace.folder / "inner").symlink_to("uploads/a")
    with workspace.open_file("inner") as fd:
        assert os.read(fd, 10) == b"text"


def test_writing_creates_folders_and_leaves_no_temporary_file(workspace: Workspace) -> None:
    workspace.write_file("outputs/a/../b/./c.txt", b"one")
    workspace.write_file("outputs/b/c.txt", b"two")
    assert [path.name for path in (workspace.folder / "outputs/b").iterdir()] == ["c.txt"]
    assert (workspace.folder / "outputs/b/c.txt").read_bytes() == b"two"


@pytest.mark.parametrize("path", ["", "outputs/", "..", "a/..", ".", "a\0b"])
def test_a_path_that_names_no_file_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises((ValueError, OSError)):
        workspace.write_file(path, b"")


def test_writing_onto_a_folder_fails_and_leaves_no_temporary_file(workspace: Workspace) -> None:
    with pytest.raises(IsADirectoryError):
        workspace.write_file("outputs", b"")
    assert not [path for path in workspace.folder.iterdir() if path.name.endswith(".tmp")]


def test_files_are_listed_in_order_without_links(workspace: Workspace) -> None:
    workspace.write_file("outputs/b", b"12")
    workspace.write_file("outputs/a/z", b"1")
    listed = workspace.list_files("", 100)
    assert [(file.path, file.size_bytes) for file in listed] == [("outputs/a/z", 1), ("outputs/b", 2)]
    assert [file.path for file in workspace.list_files("outputs/a", 100)] == ["outputs/a/z"]
    assert len(workspace.list_files("", 1)) == 2


@pytest.mark.parametrize("path", ["..", "out", "/"])
def test_no_folder_outside_is_listed(workspace: Workspace, path: str) -> None:
    with pytest.raises(OSError, match="cross-device"):
        workspace.list_files(path, 100)


@pytest.mark.parametrize("chat_id", ["", "..", "../../x", CHAT.upper().replace("0", "A"), CHAT + "/.."])
def test_a_chat_id_that_is_no_uuid_is_refused(tmp_path: Path, chat_id: str) -> None:
    with pytest.raises(InvalidRequest):
        Workspaces(tmp_path).open_workspace(chat_id)
    assert not list(tmp_path.iterdir())


def test_too_deep_folders_do_not_stop_a_walk(workspace: Workspace) -> None:
    workspace.write_file("outputs/a", b"1")
    fd = os.open(workspace.folder, os.O_RDONLY)
    for _ in range(80):
        os.mkdir("x" * 200, dir_fd=fd)
        inner = os.open("x" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    assert [file.path for file in workspace.list_files("", 100)] == ["outputs/a"]
    assert not workspace.explain_full()
    workspace.write_file("outputs/b", b"2")


@pytest.mark.parametrize("bytes_max", [0, 4095, 4096 * 2 - 1])
def test_a_full_workspace_refuses_writes(tmp_path: Path, bytes_max: int) -> None:
    found = Workspaces(tmp_path, bytes_max).open_workspace(CHAT)
    (found.folder / "outputs/a").write_bytes(b"x" * 100)
    with pytest.raises(WorkspaceFull, match="delete files"):
        found.write_file("outputs/b", b"x" * 4096)
    assert os.listdir(found.folder / "outputs") == ["a"]


async def test_a_repeatedly_cancelled_caller_still_waits_for_the_work() -> None:
    may_end, order = threading.Event(), list[str]()

    def work() -> None:
        may_end.wait(5)
        order.append("work")

    async def caller() -> None:
        try:
            await run_to_end(work)
        finally:
            order.append("caller")

    async with asyncio.timeout(100):
        task = asyncio.create_task(caller())
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        assert not order
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert order == ["work", "caller"]


async def test_a_result_and_an_error_are_passed_through_unchanged() -> None:
    assert await run_to_end(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await run_to_end(lambda: 1 // 0)
