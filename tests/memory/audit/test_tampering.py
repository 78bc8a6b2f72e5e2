"""Tampering with audit logs is detected, in files and in tables, and a killed writer leaves a valid log."""

import asyncio
import errno
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.hash_chain import LogReport, LogVerifier
from services.memory.storage.files.audit import SEGMENT_LINES_MAX, Segments
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from tests.support.memory.audit import ADA, add_audit_lines
from tests.support.memory.engines import Files, Kept, Serve, Tables, open_engine
from tests.support.postgresql import connected, needs_postgres

Change = Callable[[list[bytes]], list[bytes]]


def verify(lines: list[str], head: tuple[int, str] | None) -> LogReport:
    verifier = LogVerifier(head)
    verifier.add_lines(lines)
    return verifier.finish()


def swap(lines: list[bytes]) -> list[bytes]:
    return [lines[1], lines[0], *lines[2:]]


def change_byte(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"1"', b'"7"'), *lines[2:]]


CASES: dict[str, tuple[Change, str]] = {
    "a byte is changed": (change_byte, "line 2, .* changed"),
    "a line is removed": (lambda lines: [*lines[:2], *lines[3:]], "line 3, after number 2, does not follow"),
    "two are swapped": (swap, "line 2, after number 2, does not follow"),
    "the first is removed": (lambda lines: lines[1:], "before number 2 are missing"),
    "the last is removed": (lambda lines: lines[:-1], "after number 3 are missing: there were 4"),
    "one is no line": (lambda lines: [*lines[:3], b"{}"], "line 4, after number 3, is no line"),
}


async def change_log(kept: Files | Tables, change: Change) -> None:
    """Change the only log of a store."""
    if isinstance(kept, Files):
        (log,) = (kept.folder / "audit").glob("*/*.jsonl")
        log.write_bytes(b"".join(line + b"\n" for line in change(log.read_bytes().splitlines())))
        return
    async with connected(kept.url) as connection:
        rows = await connection.fetch("SELECT line FROM audit WHERE tenant = 'acme' ORDER BY seq")
        changed = change([row[0].encode() for row in rows])
        await connection.execute("DELETE FROM audit")
        values = [("acme", seq, 0, line.decode()) for seq, line in enumerate(changed, 1)]
        await connection.executemany("INSERT INTO audit VALUES ($1, $2, $3, $4)", values)


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("case", CASES)
async def test_verify_names_the_line_that_was_tampered_with(kept: Kept, case: str) -> None:
    change, place = CASES[case]
    assert isinstance(kept, Files | Tables)
    async with kept.memory() as memory:
        await add_audit_lines(memory)
        await change_log(kept, change)
        report = await memory.call_as(ADA, "VerifyAudit")
    assert re.search(place, report.problem), report.problem


async def test_a_line_cut_by_a_kill_is_dropped_and_the_chain_continues(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        await add_audit_lines(memory)
    (log,) = (folder / "audit").glob("*/*.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"seq": 5, "at"')
    async with serve() as memory:
        await add_audit_lines(memory)
        report = await memory.call_as(ADA, "VerifyAudit")
    assert (report.lines, report.problem) == (8, "")
    assert log.read_bytes().startswith(whole)


async def test_a_writer_killed_repeatedly_leaves_a_chain_that_verifies(serve: Serve, folder: Path) -> None:
    acknowledged = 0
    for _ in range(3):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.memory.audit.write_killed", str(folder)), stdout=asyncio.subprocess.PIPE
        )
        assert program.stdout is not None
        async with asyncio.timeout(60):
            for _ in range(20):
                while not (line := await program.stdout.readline()).startswith(b"stored"):
                    assert line, "it ended"
                acknowledged += 1
        program.send_signal(signal.SIGKILL)
        acknowledged += (await program.stdout.read()).count(b"stored")
        await program.wait()
    async with serve() as memory:
        report = await memory.call_as(ADA, "VerifyAudit")
    assert report.problem == ""
    assert acknowledged <= report.lines <= acknowledged + 3


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_line_that_failed_to_sync_is_not_stored_twice(tmp_path: Path, failing: int) -> None:
    syncs = 0

    def sync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == failing:
            raise OSError(errno.EIO, "Input/output error")

    log, stored = Segments(tmp_path, lines_max=2, sync=sync), 0
    while stored < 4:
        try:
            log.append([{"at": stored, "event": "key.made"}])
            stored += 1
        except OSError:
            assert syncs == failing
    for again in (log, Segments(tmp_path, lines_max=2)):
        lines = [line for first in again.list_segments() for line in again.read_segment(first)]
        report = verify(lines, again.head)
        assert (report.lines, report.last_seq, report.problem) == (4, 4, "")


def test_an_empty_segment_file_hides_no_line(tmp_path: Path) -> None:
    log = Segments(tmp_path, lines_max=2)
    for at in range(2):
        log.append([{"at": at, "event": "key.made"}])
    (tmp_path / "head.json").unlink()
    (tmp_path / f"{3:016d}.jsonl").touch()
    log = Segments(tmp_path, lines_max=2)
    log.append([{"at": 2, "event": "key.made"}])
    lines = [line for first in log.list_segments() for line in log.read_segment(first)]
    assert verify(lines, log.head).problem == ""


def test_old_lines_are_deleted_in_whole_segments_and_the_log_still_verifies(tmp_path: Path) -> None:
    log = Segments(tmp_path, lines_max=2)
    for at in range(7):
        log.append([{"at": at, "event": "key.made"}])
    log.forget(before_at=4, now=9)
    log = Segments(tmp_path, lines_max=2)
    assert log.list_segments() == [5, 7]
    lines = [line for first in log.list_segments() for line in log.read_segment(first)]
    report = verify(lines, log.head)
    assert (report.first_seq, report.last_seq, report.problem) == (5, 8, "")
    report = verify(lines[1:], log.head)
    assert report.problem == "the lines before number 6 are missing"


async def test_a_damaged_log_of_one_tenant_does_not_stop_the_deletion_in_others(tmp_path: Path) -> None:
    async with open_engine(Files(tmp_path)) as engine:
        store = engine.audit.store
        await store.append("acme", [{"at": 1, "event": "key.made"}] * SEGMENT_LINES_MAX)
        await store.append("acme", [{"at": 3, "event": "key.made"}])
        (tmp_path / "audit" / "0" / "1.jsonl").mkdir(parents=True)
        with pytest.raises(ExceptionGroup, match="some audit logs"):
            await store.forget(2)
        assert len(await store.read_behind("acme", 0, 9)) == 2


@needs_postgres
async def test_old_rows_are_deleted_and_the_log_still_verifies(database_url: str) -> None:
    async with open_postgres(database_url, Limits(4, 10.0)) as engine:
        for tenant, times in (("acme", (0, 1, 2, 3, 4, 1, 5)), ("old", (0, 1)), ("new", (4, 5))):
            for at in times:
                await engine.audit.store.append(tenant, [{"at": at, "event": "key.made"}])
        await engine.audit.store.forget(4)
        assert [len(await engine.audit.store.read_behind(tenant, 0, 9)) for tenant in ("old", "new")] == [2, 2]
        lines = [line async for portion in engine.audit.store.read_all("acme") for line in portion]
        report = verify(lines, await engine.audit.store.read_head("acme"))
        assert (report.first_seq, report.last_seq, report.problem) == (5, 8, "")
        assert verify(lines[1:], None).problem == "the lines before number 6 are missing"
