"""Reads definition files at the start, on changes, and again after the machine could not read one.

It polls, because notifications miss folders created later, replaced links (Kubernetes' ConfigMaps) and shared volumes.
It reads in a thread, because an unresponsive file system must not block the loop. Readers use
`headrace.regular_files.read_regular_file`, which refuses endless files.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import structlog

from headrace.regular_files import noting_passing_errors
from services.runtime.clock import monotonic_s, thread_time_s
from services.runtime.ending import guard_task

T = TypeVar("T")
P = ParamSpec("P")


REFRESH_INTERVAL_MS = 300
"""Time between checks of folders; files are checked when a folder has changed, and otherwise as often as LOOK_SHARE
permits."""

LOOK_SHARE = 0.0025
"""Share of a core for checking files, 2 to 5 µs each: a change within one of 1,000 is noticed some 2 s later."""

INTERVAL_MS_MIN = 10
"""Minimum interval; a shorter one would keep the process busy with checks."""

UNSETTLED_LOOKS_MAX = 10
"""Number of checks after which a reload no longer waits for changes to settle."""

READ_TIMEOUT_S = 10.0
"""Time limit for reading files at the start; later reads that take longer are logged and awaited."""

UNREAD_WAIT_S = 2.0
"""Wait before files are read again after a transient read error (PASSING)."""

Seen: TypeAlias = frozenset[tuple[str, int, int]]


log = structlog.get_logger()


@asynccontextmanager
async def watching_paths(
    paths: Sequence[Path],
    read: Callable[[], T],
    use: Callable[[T], object] | None = None,
    *,
    interval_ms: int = REFRESH_INTERVAL_MS,
) -> AsyncGenerator[None]:
    """Call `read` in a thread before the block is entered, and inside it after each change of the files or folders
    `paths`, or after some time when `read_regular_file` met a transient error. `use` is called on the loop with each
    result. Neither may raise: inside the block an error ends the process. A missing path is waited for.

    Raises:
        TimeoutError: The first call took longer than READ_TIMEOUT_S.
    """
    where = ", ".join(map(str, paths))
    thread = DaemonThread(f"watch {paths[0].name}")

    def read_noting() -> tuple[T, bool]:
        with noting_passing_errors() as errors:
            return read(), not errors

    async def load() -> bool:
        result, is_whole = await thread.call(read_noting)
        if use is not None:
            use(result)
        return is_whole

    try:
        # Checked before reading, so that no change between the two is missed.
        watched = _WatchedPaths(paths)
        seen = await read_in_time(thread.call(watched.look_at_all), where)
        # A transient error may be over already, so one more attempt is made at once.
        is_whole = await read_in_time(load(), where) or await read_in_time(load(), where)
        interval_s = max(interval_ms, INTERVAL_MS_MIN) / 1000
        watching = guard_task(
            asyncio.create_task(_follow_changes(watched, where, seen if is_whole else None, thread, load, interval_s))
        )
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})
    finally:
        thread.close()


async def read_in_time(reading: Awaitable[T], where: str) -> T:
    """Await and return a read; raises TimeoutError after READ_TIMEOUT_S."""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await reading
    except TimeoutError as error:
        raise TimeoutError(f"{where}: its file system has not answered for {READ_TIMEOUT_S:.0f} s") from error


async def _follow_changes(
    watched: _WatchedPaths,
    where: str,
    loaded: Seen | None,
    thread: DaemonThread,
    load: Callable[[], Coroutine[Any, Any, bool]],
    interval_s: float,
) -> None:
    """Follow changes to the loaded files; `loaded` is None if some could not be read."""

    async def wait_and_look(look: Callable[[], Seen]) -> Seen:
        await asyncio.sleep(interval_s)
        return await _report_delay(thread.call(look), where)

    while True:
        if loaded is None:
            await asyncio.sleep(UNREAD_WAIT_S)
        if (seen := await wait_and_look(watched.look)) == loaded:
            continue
        for _ in range(UNSETTLED_LOOKS_MAX):
            before = seen
            if (seen := await wait_and_look(watched.look_at_all)) == before:
                break
        log.debug("files changed", path=where, files=len(seen))
        loaded = seen if await _report_delay(load(), where) else None


async def _report_delay(reading: Coroutine[Any, Any, T], where: str) -> T:
    """Return what is read, however long it takes; the previous content remains in force in the meantime."""
    task = asyncio.create_task(reading)
    try:
        if not (await asyncio.wait({task}, timeout=READ_TIMEOUT_S))[0]:
            log.error("files not read in time", path=where, seconds=READ_TIMEOUT_S, last_good_version_stays=True)
        return await task
    finally:
        task.cancel()


class _WatchedPaths:
    """The stamps of all files, checked in one thread."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._folders: Seen = frozenset()
        self._seen: Seen = frozenset()
        self._look_again_s = 0.0

    def look(self) -> Seen:
        """Check the folders, and the files if a folder has changed or a check is due."""
        is_due = monotonic_s() >= self._look_again_s
        return self.look_at_all() if is_due or self._stamp_folders() != self._folders else self._seen

    def look_at_all(self) -> Seen:
        # Folders first, so that a file that arrives in the meantime is found the next time.
        self._folders = self._stamp_folders()
        began_s, began_cpu_s = monotonic_s(), thread_time_s()
        self._seen = frozenset(
            stamp for path in self._paths for file in _list_files(path) for stamp in _stamp_file(file)
        )
        self._look_again_s = began_s + (thread_time_s() - began_cpu_s) / LOOK_SHARE
        return self._seen

    def _stamp_folders(self) -> Seen:
        return frozenset(stamp for path in self._paths for stamp in _stamp_file(path))


def _list_files(path: Path) -> Sequence[Path | os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [*entries]
    except NotADirectoryError:
        return [path]
    except OSError:  # the file is missing
        return []


def _stamp_file(file: Path | os.DirEntry[str]) -> tuple[tuple[str, int, int], ...]:
    """Return a file's name, inode and time of change; nothing for a missing file or a broken link."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return ((file.name, stat.st_ino, stat.st_ctime_ns),)


class DaemonThread(Executor):
    """A thread for calls that may block forever, one after the other; the process does not wait for it at its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._is_started = False

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread, in the caller's context, and return its result; a caller that leaves does not
        end it."""
        return await asyncio.get_running_loop().run_in_executor(self, partial(copy_context().run, function))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; the first starts the thread. Only one thread may submit."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run_calls, name=self._name, daemon=True).start()
        future: Future[T] = Future()
        self._calls.put((partial(fn, *args, **kwargs), future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread like `close`, whatever the arguments: it waits for no calls and drops none."""
        self.close()

    def close(self) -> None:
        """End the thread after its queued calls."""
        self._calls.put(None)

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
