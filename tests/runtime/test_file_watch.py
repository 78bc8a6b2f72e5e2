"""A folder, or a file, that changes in every way files change; the test counts reloads."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.runtime.files.file_watch import READ_TIMEOUT_S, UNSETTLED_LOOKS_MAX, DaemonThread, watching_paths
from tests.support.jumping_loop import JumpingLoop
from tests.support.timing import within

INTERVAL_MS = 20


class Reloads:
    """Counts reloads; `after(change)` makes a change and waits for the reload."""

    def __init__(self) -> None:
        self.count = 0
        self._happened = asyncio.Event()

    def count_one(self) -> None:
        self.count += 1
        self._happened.set()

    async def after(self, change: Callable[[], object]) -> None:
        self._happened.clear()
        change()
        async with within(10):
            await self._happened.wait()


@asynccontextmanager
async def watching(path: Path) -> AsyncGenerator[Reloads]:
    reloads = Reloads()
    async with watching_paths([path], lambda: None, lambda _: reloads.count_one(), interval_ms=INTERVAL_MS):
        assert reloads.count == 1, "at the start"
        reloads.count = 0
        yield reloads


async def check_no_reload(reloads: Reloads) -> None:
    before = reloads.count
    await asyncio.sleep(INTERVAL_MS * 5 / 1000)
    assert reloads.count == before


async def test_adding_changing_replacing_and_removing_a_file_each_reload_once(tmp_path: Path) -> None:
    file, new = tmp_path / "a.json", tmp_path.parent / "new.json"

    def rename() -> None:
        new.write_text("{}")
        new.replace(file)

    async with watching(tmp_path) as reloads:
        await check_no_reload(reloads)
        for change in (lambda: file.write_text("1"), lambda: file.write_text("2"), rename, file.unlink):
            await reloads.after(change)
        await check_no_reload(reloads)
        assert reloads.count == 4


async def test_many_steps_of_one_change_are_one_reload(tmp_path: Path) -> None:
    async with watching(tmp_path) as reloads:
        for step in range(10):
            (tmp_path / "a.json").write_text("x" * step)
            await asyncio.sleep(INTERVAL_MS / 2 / 1000)
        assert reloads.count == 0
        await asyncio.sleep(INTERVAL_MS * 5 / 1000)
        assert reloads.count == 1


async def test_a_file_that_never_settles_is_loaded_eventually(tmp_path: Path) -> None:
    async with watching(tmp_path) as reloads, asyncio.timeout(UNSETTLED_LOOKS_MAX * INTERVAL_MS * 10 / 1000):
        while not reloads.count:
            (tmp_path / "a.json").write_text("x")
            await asyncio.sleep(INTERVAL_MS / 4 / 1000)


async def test_watching_a_folder_of_many_files_is_cheap(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.json" for number in range(2000)]
    for file in files:
        file.write_text("{}")
    began_s = time.process_time()
    for file in files:
        file.stat()
    look_s = time.process_time() - began_s
    async with watching(tmp_path) as reloads:
        began_s = time.process_time()
        await asyncio.sleep(1.0)
        assert time.process_time() - began_s < 10 * look_s, "50 looks at all files take more"
        await reloads.after(lambda: files[0].write_text("{} "))
        await reloads.after((tmp_path / "new.json").touch)


async def test_a_missing_folder_is_loaded_when_it_appears(tmp_path: Path) -> None:
    folder = tmp_path / "agents"

    def appear() -> None:
        folder.mkdir()
        (folder / "a.json").write_text("1")

    async with watching(folder) as reloads:
        await check_no_reload(reloads)
        await reloads.after(appear)
        await reloads.after(lambda: (folder / "a.json").write_text("2"))


async def test_a_replaced_folder_is_still_watched(tmp_path: Path) -> None:
    folder, release = tmp_path / "agents", tmp_path / "release"
    folder.mkdir()
    (folder / "a.json").write_text("1")
    release.mkdir()
    (release / "b.json").write_text("1")

    def replace() -> None:
        shutil.rmtree(folder)
        release.rename(folder)

    async with watching(folder) as reloads:
        await reloads.after(replace)
        await reloads.after(lambda: (folder / "b.json").write_text("2"))


async def test_changes_of_other_files_do_not_reload_a_watched_file(tmp_path: Path) -> None:
    file = tmp_path / "providers.json"
    async with watching(file) as reloads:
        (tmp_path / "other.json").write_text("x")
        await check_no_reload(reloads)
        await reloads.after(lambda: file.write_text("1"))
        await reloads.after(lambda: file.write_text("2"))
        await reloads.after(file.unlink)


@pytest.mark.parametrize("name", ["providers.json", "."])
async def test_a_mounted_configmap_is_reloaded_when_its_link_changes(tmp_path: Path, name: str) -> None:
    """Kubernetes stores the files in a folder behind the link ..data, and changes that link."""

    def version(number: int) -> None:
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "providers.json").write_text(str(number))
        os.symlink(f"..{number}", tmp_path / "..data_tmp")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    version(1)
    os.symlink("..data/providers.json", tmp_path / "providers.json")
    async with watching(tmp_path / name) as reloads:
        await reloads.after(lambda: version(2))
        assert (tmp_path / "providers.json").read_text() == "2"


async def test_a_hanging_file_system_blocks_neither_the_loop_nor_the_exit(tmp_path: Path) -> None:
    may_return, reads = threading.Event(), 0

    def read() -> None:
        nonlocal reads
        reads += 1
        if reads > 1:
            may_return.wait()

    async with asyncio.timeout(100):
        async with watching_paths([tmp_path], read, interval_ms=INTERVAL_MS):
            (tmp_path / "a.json").write_text("1")
            while reads < 2:
                await asyncio.sleep(0.001)
            await asyncio.sleep(INTERVAL_MS * 5 / 1000)
        assert reads == 2, "nothing is read twice at a time"
    may_return.set()


class ImpatientLoop(JumpingLoop):
    """A loop whose time jumps even if a thread is still at work."""

    def is_anything_outstanding(self) -> bool:
        return False


def test_a_file_not_read_in_time_ends_the_start(tmp_path: Path) -> None:
    may_return = threading.Event()

    async def start() -> None:
        async with watching_paths([tmp_path], may_return.wait):
            raise AssertionError("entered")

    message = f"{tmp_path}: .* not answered for {READ_TIMEOUT_S:.0f} s"
    with asyncio.Runner(loop_factory=ImpatientLoop) as runner, pytest.raises(TimeoutError, match=message):
        runner.run(start())
    may_return.set()


def test_a_process_ends_although_a_file_is_still_being_read(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, pathlib
from services.runtime.files.file_watch import watching_paths
path = pathlib.Path({str(tmp_path / "pipe")!r})
os.mkfifo(path)
reads = []
def read():
    reads.append(1)
    if len(reads) > 1:
        print("hangs", flush=True)
        path.read_bytes()
async def main():
    async with watching_paths([path], read, interval_ms=10):
        os.chmod(path, 0o600)
        while len(reads) < 2:
            await asyncio.sleep(0.01)
asyncio.run(main())
print("ended")
"""
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=100, check=True)
    assert run.stdout.endswith("hangs\nended\n")


def test_leaving_an_executor_ends_its_thread() -> None:
    with DaemonThread("short work") as executor:
        thread = executor.submit(threading.current_thread).result(timeout=10)
    thread.join(timeout=10)
    assert not thread.is_alive()
