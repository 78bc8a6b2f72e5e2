"""A real PgBouncer between the service and the database."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from benchmarks.postgresql import Server, new_folder, unprivileged
from services.runtime.ending import CannotServe
from tests.support.memory.messages import user
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import step_line
from tests.support.programs import starting

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed on this machine")

IGNORED = "ignore_startup_parameters = statement_timeout, idle_in_transaction_session_timeout, synchronous_commit"


@asynccontextmanager
async def pooling(server: Server, database_url: str, *settings: str) -> AsyncGenerator[str]:
    """Run a pooler; yield the URL of the database through it."""
    with new_folder() as folder:
        ini = folder / "pgbouncer.ini"
        given = ["[databases]", f"* = host={server.folder} user=headrace", "[pgbouncer]", "auth_type = any"]
        given += ["listen_port = 5432", f"unix_socket_dir = {folder}", "listen_addr =", *settings]
        ini.write_text("\n".join(given) + "\n")
        ini.chmod(0o644)
        assert PROGRAM is not None
        command = (*unprivileged(), PROGRAM, str(ini))
        async with starting(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while not (folder / ".s.PGSQL.5432").exists():
                assert process.returncode is None, await process.communicate()
                await asyncio.sleep(0.02)
            yield database_url.replace(str(server.folder), str(folder))


@pytest.mark.parametrize(
    "settings",
    [
        ["pool_mode = transaction"],
        ["pool_mode = transaction", IGNORED],
        ["pool_mode = transaction", IGNORED, "default_pool_size = 1"],
        ["pool_mode = transaction", IGNORED, "server_round_robin = 1", "min_pool_size = 5"],
        ["pool_mode = statement"],
        ["pool_mode = statement", IGNORED],
        ["pool_mode = session"],
    ],
    ids=" ".join,
)
async def test_a_pooler_without_sessions_is_rejected_at_once(
    postgres: Server, database_url: str, settings: list[str]
) -> None:
    async with asyncio.timeout(100), pooling(postgres, database_url, *settings) as url:
        with pytest.raises(CannotServe, match="HEADRACE_DATABASE_URL leads to a pooler"):
            async with memory_in(url):
                pass


async def test_a_pooler_with_sessions_works_like_a_direct_connection(postgres: Server, database_url: str) -> None:
    async with (
        asyncio.timeout(100),
        pooling(postgres, database_url, "pool_mode = session", IGNORED) as url,
        memory_in(url) as memory,
        memory_in(url) as other,
    ):
        chat_id, run_id = await memory.begin("hello")
        for text in "abc":
            await memory.append(chat_id, run_id, step_line(user(text)))
            await other.append(chat_id, run_id, step_line(user(text)))
        assert len(await other.context(chat_id, run_id)) == 7
