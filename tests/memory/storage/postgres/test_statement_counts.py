"""A run takes the same few statements however many services share the database, an idle service one a second, and an
erasure few for many chats.

PostgreSQL itself logs each statement, BEGIN and COMMIT included.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.postgresql import Server
from headrace.client import Client
from headrace.v1 import llm_pb2
from services.orchestrator.server import orchestrator
from services.runtime.auth.identity import ALL_SCOPES, Identity
from tests.support.local_client import open_client
from tests.support.memory import people
from tests.support.memory.filling import CHATS_EACH, fill
from tests.support.memory.questions import write_sources
from tests.support.memory.serving import memory_in
from tests.support.orchestrator.steps import ANSWER, Step, call_tool
from tests.support.orchestrator.suite import ANYWHERE, serve_suite
from tests.support.postgresql import connected

STATEMENT = re.compile(r"LOG:  (?:execute [^:]*|statement): (.*)")

TOOLS = 3
RUNS = 5
"""In chats of their own, so that each replica gets some."""

REST_S = 6.0


class StatementLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size

    def take(self) -> list[str]:
        """Return the statements since the last call."""
        with self._path.open() as file:
            file.seek(self._start)
            logged = file.read()
            self._start = file.tell()
        return STATEMENT.findall(logged)


def reply(request: llm_pb2.ChatRequest) -> list[Step]:
    results = sum(message.role == "tool" for message in request.messages)
    return call_tool("look", call_id=f"call_{results}") if request.tools and results < TOOLS else ANSWER


@asynccontextmanager
async def suite_over(folder: Path, url: str, replicas: int) -> AsyncGenerator[Client]:
    """Run an orchestrator over `replicas` services of memory."""
    async with serve_suite(folder) as suite, AsyncExitStack() as stack:
        suite.llm.reply = reply
        places = [f"unix:{folder}/memory-{n}.sock" for n in range(replicas)]
        for place in places:
            await stack.enter_async_context(memory_in(url, server=replace(ANYWHERE, listen=place)))
        server = replace(ANYWHERE, listen=f"unix:{folder}/own.sock")
        config = replace(suite.config, server=server, memory_address=",".join(places), schedule_look_s=5.0)
        await suite.stop()
        await stack.enter_async_context(orchestrator(config))
        yield await stack.enter_async_context(open_client(server.listen))


async def ask(client: Client, agent: str) -> None:
    async with client.ask("hello", agent_key=agent) as deltas:
        last = [delta async for delta in deltas][-1]
    assert last.WhichOneof("payload") == "run_complete", last


async def test_a_run_takes_few_statements_and_an_idle_service_one_a_second(postgres: Server, tmp_path: Path) -> None:
    # One after the other, because both databases are in one log.
    for replicas, plain_max, react_max in ((1, 12, 30), (3, 14, 36)):
        (folder := tmp_path / str(replicas)).mkdir()
        await check_counts(postgres, folder, replicas, plain_max, react_max)


async def check_counts(postgres: Server, folder: Path, replicas: int, plain_max: int, react_max: int) -> None:
    url = postgres.new_database()
    async with connected(url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    log = StatementLog(postgres.folder / "log")
    async with suite_over(folder, url, replicas) as client:
        for agent, most in (("oneshot", plain_max), ("react", react_max)):
            await ask(client, agent)  # which opens connections
            log.take()
            for _ in range(RUNS):
                await ask(client, agent)
            await asyncio.sleep(0.1)
            statements = log.take()
            assert len(statements) <= most * RUNS, statements
        log.take()
        await asyncio.sleep(REST_S)
        statements = log.take()
        assert 0 < len(statements) <= REST_S * replicas, statements


async def test_an_erasure_takes_few_statements_per_chat(postgres: Server) -> None:
    url = postgres.new_database()
    async with memory_in(url) as memory:
        await write_sources(memory)
        async with connected(url) as connection:
            await fill(connection, 2 * CHATS_EACH, 1)
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
    log = StatementLog(postgres.folder / "log")
    async with memory_in(url) as memory:
        response = await memory.call_as(Identity("t-0", "op", scopes=ALL_SCOPES), "EraseData", user="u-1")
        erasure = await people.run_erasure(memory, response.erasure.erasure_id)
    assert people.count(erasure)["chats"] == CHATS_EACH
    statements = log.take()
    vacuums = [statement for statement in statements if statement.startswith("VACUUM")]
    assert len({*vacuums}) == len(vacuums), "once each table"
    assert len(statements) - len(vacuums) <= 1.6 * CHATS_EACH, Counter(statements).most_common(30)
