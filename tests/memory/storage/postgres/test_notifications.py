"""Notifications between services of one database, and how they notice that their server is gone."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.v1 import common_pb2, memory_pb2
from services.memory.log.chat_watch import LOOK_S, ChatWatch
from services.memory.storage.gates.watch import GateWatch
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.memory.storage.postgres.notifications import CHANNEL, Notifications
from tests.support.cluster.links import link
from tests.support.cluster.pair import SOCKET
from tests.support.memory.engines import Tables, drive
from tests.support.memory.gates import opening, submitted, watching
from tests.support.memory.messages import content
from tests.support.memory.serving import memory_in
from tests.support.memory.writing import new_id, step_line
from tests.support.postgresql import connected
from trials.simulation.postgres.driver import DirectWay, connect_to
from trials.simulation.postgres.server import Server as ModelServer

LIMITS = Limits(2, 10.0)


async def test_notifications_continue_after_the_connection_was_lost(database_url: str) -> None:
    async with asyncio.timeout(200), open_postgres(database_url, LIMITS) as engine, memory_in(database_url) as memory:
        chat_id, _ = await memory.begin_and_end("hello")
        with engine.chat_watch.reading(chat_id) as reader:
            for _ in range(2):
                began_s = asyncio.get_running_loop().time()
                waiting = asyncio.create_task(reader.wait())
                await memory.begin_and_end("again", chat_id)
                await waiting
                assert asyncio.get_running_loop().time() - began_s < LOOK_S
                await lose_connections(database_url)
                await asyncio.sleep(1.5)


async def lose_connections(url: str) -> None:
    """End the sessions of all memory services."""
    async with connected(url) as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        await connection.execute(f"{others} AND application_name = 'headrace-memory'")


async def test_gates_are_announced_by_every_service_and_listed_again_after_a_loss(database_url: str) -> None:
    async with asyncio.timeout(200), memory_in(database_url) as first, memory_in(database_url) as second:
        chat_id, run_id = await first.begin()
        async with watching(second) as watch:
            watch.shows_lists = True
            assert (await watch.next(2))[-1] == "list_end"
            await first.append(chat_id, run_id, opening("t_1"))
            events = await watch.next()
            while events[-1] != "t_1 open":  # the list comes again if the notification connection was made later
                events += await watch.next()
            await lose_connections(database_url)
            while events[-1] != "list_begin":
                events += await watch.next()
            assert await watch.next(2) == ["t_1 open", "list_end"]
            await first.append(chat_id, run_id, submitted("t_1"))
            assert await watch.next() == ["t_1 answered"]


async def test_services_share_the_token_ratio_learned_from_usage(database_url: str) -> None:
    """One service counts a turn's request, and the other receives its usage with the answer."""
    limits = memory_pb2.ModelLimits(provider_key="p", model="qwen3-max", context_window_tokens=100_000)
    async with asyncio.timeout(200), memory_in(database_url) as memory, memory_in(database_url) as other_memory:
        chat_id, run_id = await memory.begin("hello " * 500)
        request = memory_pb2.LoadContextRequest(chat_id=chat_id, run_id=run_id, limits=limits)
        while b'"_learned"' not in await Tables(database_url).log(chat_id):
            loaded = await memory.stub.LoadContext(request)
            await asyncio.sleep(0.05)  # as long as the shortest reply takes
            usage = common_pb2.Usage(input_tokens=2 * loaded.tokens)
            await other_memory.append(chat_id, run_id, step_line(content("a", usage=usage, msg_id=new_id())))


async def test_a_server_that_disappears_silently_is_noticed(database_url: str, tmp_path: Path) -> None:
    """Its other address leads to the same server here."""
    connected_at = asyncio.Queue[datetime]()
    target = Path(parse_qs(urlsplit(database_url).query)["host"][0]) / SOCKET
    async with asyncio.timeout(200), AsyncExitStack() as stack:
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            folder.mkdir()
        first, second = [await stack.enter_async_context(link(folder / SOCKET, target)) for folder in folders]
        second.cut()
        parts = urlsplit(database_url)
        url = parts._replace(query=f"host={folders[0]},{folders[1]}").geturl()
        async with memory_in(database_url):
            notifications = Notifications(url, connected_at.put_nowait, GateWatch(), ChatWatch())
            stack.callback(asyncio.create_task(notifications.run_connection()).cancel)
            await connected_at.get()
            first.cut()
            second.mend()
            await connected_at.get()


def call_after(turns: int, act: Callable[[], object]) -> None:
    """Call `act` after `turns` turns of the loop."""
    then = partial(call_after, turns - 1, act) if turns else act
    asyncio.get_running_loop().call_soon(then)


@pytest.mark.parametrize("turns", range(4))
async def test_a_notification_to_a_listener_that_is_ending_is_no_error(modelled: ModelServer, turns: int) -> None:
    errors = list[object]()
    connected = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    drive(modelled)
    news = Notifications("postgresql://modelled", lambda _: connected.set(), GateWatch(), ChatWatch())
    news.listen(lambda _: None)
    listening = asyncio.create_task(news.run_connection())
    await connected.wait()
    await asyncio.sleep(0.1)
    sender = connect_to(modelled, DirectWay(), {})
    call_after(turns, listening.cancel)
    await sender.execute("SELECT pg_notify($1, $2)", CHANNEL, "news of somebody")
    await asyncio.wait([listening])
    assert not errors
