"""A folder, or a file, that changes in every way files change; reloads are counted."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.runtime.file_watch import UNSETTLED_LOOKS_MAX, watch_path
from tests.timing import within

INTERVAL_MS = 20


class Reloads:
    """Counts; `after(change)` makes a change and waits until it was seen."""

    def __init__(self) -> None:
        self.count = 0
        self._happened = asyncio.Event()

    def reload(self) -> None:
        self.count += 1
        self._happened.set()

    async def after(self, change: Callable[[], object]) -> None:
        self._happened.clear()
        change()
        async with within(2):
            await self._happened.wait()


@asynccontextmanager
async def watched(path: Path) -> AsyncGenerator[Reloads]:
    reloads = Reloads()
    watching = asyncio.create_task(watch_path(path, reloads.reload, interval_ms=INTERVAL_MS))
    await asyncio.sleep(0)  # it looks for the first time
    yield reloads
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def quiet(reloads: Reloads) -> None:
    before = reloads.count
    await asyncio.sleep(INTERVAL_MS * 5 / 1000)
    assert reloads.count == before


async def test_a_file_added_changed_renamed_into_place_and_removed(tmp_path: Path) -> None:
    file, new = tmp_path / "a.json", tmp_path.parent / "new.json"

    def rename() -> None:
        new.write_text("{}")
        new.replace(file)

    async with watched(tmp_path) as reloads:
        await quiet(reloads)
        for change in (lambda: file.write_text("1"), lambda: file.write_text("2"), rename, file.unlink):
            await reloads.after(change)
        await quiet(reloads)
        assert reloads.count == 4


async def test_many_steps_of_one_change_are_one_reload(tmp_path: Path) -> None:
    async with watched(tmp_path) as reloads:
        for step in range(10):
            (tmp_path / "a.json").write_text("x" * step)
            await asyncio.sleep(INTERVAL_MS / 2 / 1000)
        assert reloads.count == 0
        await asyncio.sleep(INTERVAL_MS * 5 / 1000)
        assert reloads.count == 1


async def test_a_file_that_never_settles_is_loaded_all_the_same(tmp_path: Path) -> None:
    async with watched(tmp_path) as reloads, asyncio.timeout(UNSETTLED_LOOKS_MAX * INTERVAL_MS * 10 / 1000):
        while not reloads.count:
            (tmp_path / "a.json").write_text("x")
            await asyncio.sleep(INTERVAL_MS / 4 / 1000)


async def test_a_missing_folder_is_waited_for_and_loaded_when_it_comes(tmp_path: Path) -> None:
    folder = tmp_path / "agents"

    def appear() -> None:
        folder.mkdir()
        (folder / "a.json").write_text("1")

    async with watched(folder) as reloads:
        await quiet(reloads)
        await reloads.after(appear)
        await reloads.after(lambda: (folder / "a.json").write_text("2"))


async def test_a_folder_replaced_as_a_whole_is_watched_on(tmp_path: Path) -> None:
    folder, release = tmp_path / "agents", tmp_path / "release"
    folder.mkdir()
    (folder / "a.json").write_text("1")
    release.mkdir()
    (release / "b.json").write_text("1")

    def replace() -> None:
        shutil.rmtree(folder)
        release.rename(folder)

    async with watched(folder) as reloads:
        await reloads.after(replace)
        await reloads.after(lambda: (folder / "b.json").write_text("2"))


async def test_a_single_file_is_told_from_its_neighbours(tmp_path: Path) -> None:
    file = tmp_path / "providers.json"
    async with watched(file) as reloads:
        (tmp_path / "other.json").write_text("x")
        await quiet(reloads)
        await reloads.after(lambda: file.write_text("1"))
        await reloads.after(lambda: file.write_text("2"))
        await reloads.after(file.unlink)


@pytest.mark.parametrize("name", ["providers.json", "."])
async def test_a_mounted_configmap_is_seen_when_its_link_turns(tmp_path: Path, name: str) -> None:
    """Kubernetes keeps the files in a folder of their own behind the link ..data, and turns that link."""

    def version(number: int) -> None:
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "providers.json").write_text(str(number))
        os.symlink(f"..{number}", tmp_path / "..data_tmp")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    version(1)
    os.symlink("..data/providers.json", tmp_path / "providers.json")
    async with watched(tmp_path / name) as reloads:
        await reloads.after(lambda: version(2))
        assert (tmp_path / "providers.json").read_text() == "2"
