"""The stored sums of spend equal those of its rows, whatever happens to the transactions that change them."""

import asyncio
from contextlib import suppress

import asyncpg

from benchmarks.postgresql import Server
from headrace.v1 import common_pb2
from services.memory.storage.postgres.migrations import list_versions, migrate_tables
from services.runtime.auth.identity import acting_as
from tests.support.memory.budgets import ADA, begin, claim
from tests.support.memory.serving import memory_in
from tests.support.memory.spend import charge, said, total
from tests.support.memory.writing import Memory, run_line
from tests.support.postgresql import connected, make_tables, until_waits

SUMS = next(version for version, statements in list_versions().items() if "TABLE spend_sums" in statements)

NOTHING = common_pb2.Usage()

_DIFFERENCES = """
SELECT * FROM (
    SELECT day, user_name, agent_key, model, credential, sum(cost_nano_usd), sum(input_tokens) FROM {one}
    GROUP BY 1, 2, 3, 4, 5 HAVING sum(model_calls) <> 0
    EXCEPT SELECT day, user_name, agent_key, model, credential, sum(cost_nano_usd), sum(input_tokens) FROM {other}
    GROUP BY 1, 2, 3, 4, 5) AS found
"""

_TOTALS = "SELECT scope, sum(cost_nano_usd) FROM spend_sums GROUP BY scope"


async def check_sums(connection: asyncpg.Connection, cost_nano_usd: int) -> None:
    tables = "spend", "(SELECT * FROM spend_sums WHERE scope = 'user') AS own"
    for one, other in (tables, tables[::-1]):
        assert not await connection.fetch(_DIFFERENCES.format(one=one, other=other))
    assert dict(await connection.fetch(_TOTALS)) == dict.fromkeys(("tenant", "agent", "user"), cost_nano_usd)


async def spend_in_own_chat(memory: Memory, models: list[str], times: int) -> None:
    chat_id, run_id = await memory.begin()
    for n in range(times):
        await memory.append(chat_id, run_id, said(*(charge(model, 1) for model in models[n % 2 :])))
    await memory.append(chat_id, run_id, run_line(usage=NOTHING))
    await memory.delete(chat_id)


async def test_chats_that_charge_in_opposite_orders_do_not_deadlock(database_url: str) -> None:
    """One transaction has locked sums that another needs: those of a user, of an agent and of the tenant."""
    models = [f"model {n}" for n in range(20)]
    async with memory_in(database_url) as memory, connected(database_url) as connection:
        writers = (spend_in_own_chat(memory, order, 6) for order in (models, models[::-1]) * 10)
        await asyncio.gather(*writers)
        await check_sums(connection, 20 * (20 + 19) * 3)
        assert await total(memory, group_by=["user", "model"]) == 20 * 39 * 3


async def test_lost_connections_count_nothing_twice(database_url: str) -> None:
    lose = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
        " AND strpos(query, 'INSERT INTO spend') > 0 AND pid <> pg_backend_pid() LIMIT 1"
    )
    async with memory_in(database_url) as memory, connected(database_url) as connection:
        lost: list[object] = []

        async def lose_connections() -> None:
            while True:
                lost.extend(await connection.fetch(lose))
                await asyncio.sleep(0.05 if lost else 0.001)

        losing = asyncio.create_task(lose_connections())
        await asyncio.gather(*(spend_in_own_chat(memory, ["one", "two"], 10) for _ in range(8)))
        losing.cancel()
        with suppress(asyncio.CancelledError):
            await losing
        assert lost
        await check_sums(connection, 8 * 15)
        assert await total(memory, group_by=["model"]) == 8 * 15


async def test_rows_of_an_earlier_version_are_added_up(postgres: Server) -> None:
    url = postgres.new_database()
    async with connected(url) as connection:
        await make_tables(connection, SUMS - 1)
        row = "INSERT INTO spend VALUES ($1, $2, 'acme', $3, 'writer', 'one', '', 10, 5, 0, 1, $4)"
        await connection.executemany(
            row, [(0, 1, "ada", 1), (7, 1, "ada", 20), (9, 2, "ada", 300), (9, 2, "bob", 4000)]
        )
        await migrate_tables(connection)
        await check_sums(connection, 4321)


async def test_claims_that_wait_for_each_other_leave_connections_for_others(database_url: str) -> None:
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('budgets of acme', 0))"
    async with memory_in(database_url) as memory, connected(database_url) as connection:
        run_ids = [(await begin(memory))[1] for _ in range(30)]
        async with connection.transaction():
            await connection.execute(lock)  # as another replica that decides a claim
            with acting_as(ADA):
                claims = asyncio.gather(*(claim(memory, run_id, 1) for run_id in run_ids))
            await until_waits(connection, "advisory")
            async with asyncio.timeout(60):
                await memory.begin()
            assert await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1
        assert await claims == [1] * 30
