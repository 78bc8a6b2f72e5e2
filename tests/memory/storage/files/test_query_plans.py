"""SQLite scans no table that grows with the stored data: each statement finds its rows by an index, and only few of
them.
"""

import gc
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from services.memory.storage.where import SCANNED_MAX
from services.runtime.auth.identity import acting_as
from tests.support.memory.filling import fill_index
from tests.support.memory.questions import OWNER, list_calls, list_questions, write_sources, write_waiting_sources
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import RPCS

GROWING = {"chats", "runs", "texts", "gates", "gate_grants", "spend", "spend_sums", "deliveries", "facts", "schedules"}

_SCAN = re.compile(r"SCAN (\w+)")

_READS = ("SELECT", "WITH", "UPDATE", "DELETE")


STEP = 100

STEPS_MAX = 200 * SCANNED_MAX
"""Steps of SQLite's virtual machine for a statement: several for each row of a filtered page, its columns and joins."""

NAMES = re.compile(r"(List|Search|Recall|Find|Export|GetUsage)")

OTHERS = {
    *(
        "ExportAudit",
        "ExportChat",
        "ExportGates",
        "ListHoldsInForce",
        "ListErasedRuns",
    ),  # for other callers, or streams
}

PLAIN_FIELDS = {"page_size", "page_token", "limit", "may_lag", "is_shared", "request_id"}
"""Fields that select no rows."""


def call_for_each_file(set_callback: Callable[[sqlite3.Connection], None]) -> None:
    for database in gc.get_objects():
        if isinstance(database, sqlite3.Connection):
            with suppress(sqlite3.ProgrammingError):  # an earlier test has closed it
                set_callback(database)


def trace_files() -> list[str]:
    """Return a list that receives each statement, with its values, of this process's SQLite files."""
    statements: list[str] = []
    call_for_each_file(lambda database: database.set_trace_callback(statements.append))
    return statements


def list_scans(folder: Path, statement: str) -> set[str]:
    """Return the growing tables that the statement scans, in the file that has them."""
    found: set[str] = set()
    for file in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(file)) as database:
            try:
                plan = database.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            except sqlite3.OperationalError:  # of another file's tables
                continue
            found |= {name for row in plan for name in _SCAN.findall(row[3])}
    return found & GROWING


async def test_no_statement_scans_a_growing_table(folder: Path) -> None:
    scanning: set[str] = set()
    explained = 0
    async with memory_over(folder) as memory:
        await write_sources(memory)
        ids = await write_waiting_sources(memory)
        statements = trace_files()
        with acting_as(OWNER):
            for rpc, ask in list_calls(memory, ids):
                start = len(statements)
                await ask()
                for statement in {*statements[start:]}:
                    if statement.lstrip().startswith(_READS):
                        explained += 1
                        tables = list_scans(folder.parent, statement)
                        scanning |= {f"{rpc}: {table}: {statement}" for table in tables}
    assert explained > 50
    assert not scanning, "\n".join(sorted(scanning))


async def test_a_page_takes_few_steps_however_much_is_stored(folder: Path) -> None:
    costs: list[tuple[int, str]] = [(0, "")]

    def count() -> None:
        costs[-1] = costs[-1][0] + STEP, costs[-1][1]

    def watch(database: sqlite3.Connection) -> None:
        database.set_trace_callback(lambda statement: costs.append((0, statement)))
        database.set_progress_handler(count, STEP)

    async with memory_over(folder) as memory:
        await write_sources(memory)
        ids = await write_waiting_sources(memory)
        await memory.list_unfinished()  # when the index has all of them
        fill_index(next(folder.parent.rglob("index.sqlite")), 10_000, 2)
        call_for_each_file(watch)
        with acting_as(OWNER):
            for _, ask in list_calls(memory, ids):
                await ask()
    expensive = [f"{steps} steps: {statement}" for steps, statement in costs if steps > STEPS_MAX]
    assert not expensive, "\n".join(expensive)


def test_each_filter_is_covered() -> None:
    ids = {"chat_id": "", "run_id": "", "webhook_id": ""}
    covered = {(rpc, field) for rpc, fields in list_questions(ids) for field in fields}
    required = {
        (rpc, field.name)
        for rpc, (_, request) in RPCS.items()
        if NAMES.match(rpc) and rpc not in OTHERS
        for field in request.DESCRIPTOR.fields
        if field.name not in PLAIN_FIELDS
    }
    assert required <= covered, sorted(required - covered)
