"""SQLite goes through no table that grows with what is stored: each statement finds its rows by an index."""

import gc
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from services.runtime.auth.identity import acting_as
from tests.support.memory.questions import OWNER, list_calls, write_sources
from tests.support.memory.serving import memory_over

GROWING = {"chats", "runs", "places", "gates", "gate_grants", "spend", "spend_sums", "deliveries", "facts", "schedules"}

_SCAN = re.compile(r"SCAN (\w+)")

_READS = ("SELECT", "WITH", "UPDATE", "DELETE")


def trace_files() -> list[str]:
    """Return a list that grows by each statement, with its values, of this process's SQLite files."""
    statements: list[str] = []
    for database in gc.get_objects():
        if isinstance(database, sqlite3.Connection):
            with suppress(sqlite3.ProgrammingError):  # an earlier test has closed it
                database.set_trace_callback(statements.append)
    return statements


def list_scans(folder: Path, statement: str) -> set[str]:
    """Return the tables that the statement goes through, in the file that has them."""
    found: set[str] = set()
    for file in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(file)) as database:
            try:
                plan = database.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            except sqlite3.OperationalError:  # of another file's tables
                continue
            found |= {name for row in plan for name in _SCAN.findall(row[3])}
    return found & GROWING


async def test_no_statement_goes_through_a_table_that_grows(folder: Path) -> None:
    scanning: set[str] = set()
    explained = 0
    async with memory_over(folder) as memory:
        await write_sources(memory)
        statements = trace_files()
        with acting_as(OWNER):
            for rpc, ask in list_calls(memory):
                start = len(statements)
                await ask()
                for statement in {*statements[start:]}:
                    if statement.lstrip().startswith(_READS):
                        explained += 1
                        tables = list_scans(folder.parent, statement)
                        scanning |= {f"{rpc}: {table}: {statement}" for table in tables}
    assert explained > 50
    assert not scanning, "\n".join(sorted(scanning))
