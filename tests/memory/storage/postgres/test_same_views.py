"""For the same log the two engines return the same, byte for byte; and a chat that is moved between them loses
nothing."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2
from services.memory.config import Config
from services.memory.engines import open_engine
from services.memory.storage.engine import Engine
from tests.support.memory.admin_cli import tool
from tests.support.memory.any_chat import CONTEXTS, Chat, events
from tests.support.memory.messages import PICTURE, content, user
from tests.support.memory.serving import memory_in, memory_over
from tests.support.memory.summarising import Summariser
from tests.support.memory.writing import Memory, run_line, step_line
from tests.support.postgresql import empty
from tests.support.tiers import examples

LIMITS = memory_pb2.ModelLimits(provider_key="p", model="qwen3-max", context_window_tokens=4_000, output_tokens=100)
WORDS = ("hi", "long", "水", "you", "e")


async def load_views(memory: Memory, chat_id: str) -> list[bytes]:
    """Return all that callers see of a chat."""
    whole = await memory.chat(chat_id=chat_id, include_raw_messages=True)
    found: list[Message] = [whole, await memory.chats()]
    run_ids = [event.run_start.run_id for event in whole.events if event.HasField("run_start")]
    for run_id in run_ids:
        found.append(await memory.chat(run_id=run_id, include_lines=True))
        for context_id in CONTEXTS:
            own: dict[str, Any] = {"context_id": context_id} if context_id else {}
            with suppress(HeadraceError):  # it was reverted, or does not fit
                found.append(
                    await memory.call(
                        "LoadContext",
                        chat_id=chat_id,
                        run_id=run_id,
                        system="Be brief.",
                        reminders=["now"],
                        limits=LIMITS,
                        **own,
                    )
                )
    for word in WORDS:
        hits = await memory.search(word, limit=100)
        found += sorted((memory_pb2.SearchHit(excerpt=hit.excerpt, run_id=hit.run_id) for hit in hits), key=str)
    for context_id in CONTEXTS:
        version, state = await memory.state(chat_id, context_id)
        found.append(memory_pb2.GetStateResponse(version=version, state=state))
    return [message.SerializeToString(deterministic=True) for message in found]


async def copy_chat(source: Engine, target: Engine, chat_id: str) -> None:
    log = await source.chats.export(await source.chats.load(chat_id))
    await target.blobs.put_all(chat_id, "default", await source.blobs.list_all(chat_id))
    await target.chats.import_log(chat_id, log)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events, min_size=1, max_size=12))
async def test_both_engines_return_the_same(database_url: str, chat_events: list[Any]) -> None:
    await empty(database_url)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with memory_over(folder) as memory:
            chat = Chat(memory, Summariser(""))
            for _ in range(3):
                await chat.ask()
            for event in chat_events:
                await chat.meet(*event)
            await memory.update_state(chat.id, (await memory.state(chat.id))[0], '{"n": 1.50, "水": [null]}')
        async with open_both_engines(folder, database_url) as (files, tables):
            for chat_id in await files.index.list_chats():
                await copy_chat(files, tables, chat_id)
        async with memory_over(folder) as embedded, memory_in(database_url) as postgres:
            assert await load_views(embedded, chat.id) == await load_views(postgres, chat.id)


@asynccontextmanager
async def open_both_engines(folder: Path, url: str) -> AsyncGenerator[tuple[Engine, Engine]]:
    async with open_engine(Config(chat_dir=folder)) as files, open_engine(Config(database_url=url)) as tables:
        yield files, tables


async def write(memory: Memory) -> str:
    """Write a chat with an image, a revert, a state and an unfinished run."""
    chat_id, run_id = await memory.begin("水车\0 turns")
    image_step = step_line(user("look", PICTURE))
    await memory.append(chat_id, run_id, image_step, step_line(content("a\0b \u2028")), run_line())
    await memory.update_state(chat_id, 0, '{"big":123456789012345678901234567890.10}')
    await memory.begin_and_end("undone", chat_id)
    await memory.revert(chat_id, 3)
    await memory.begin("going on", chat_id)
    return chat_id


async def test_a_chat_moved_between_the_engines_loses_nothing(folder: Path, tmp_path: Path, database_url: str) -> None:
    """It is moved by the command line, to the other engine and back again."""
    async with memory_over(folder) as memory:
        first = await write(memory)
        facts = [await memory.remember("likes tea", "r1"), await memory.remember("no request")]
        before = await load_views(memory, first)
        schedule = (await memory.call("CreateSchedule", agent_key="guide", message="news?", cron="0 9 * * *")).schedule
        key = (await memory.call("CreateKey", name="laptop", user="ada")).key
        for number in (1, 2, 3):
            await memory.call("PutAgentVersion", agent_key="guide", is_shared=number < 3, definition=str(number))
        await memory.call("PutAgentDefinition", agent_key="brief", definition="{}", version=1)
    async with memory_in(database_url) as memory:
        second = await write(memory)
        second_views = await load_views(memory, second)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert await tool(folder, "export", "--output", a) == ""
    await tool(folder, "export", "--output", b, second, url=database_url)
    assert (await tool(folder, "import", a, url=database_url)).split() == [first]
    assert await tool(folder, "export", "--output", str(tmp_path / "c"), url=database_url) == ""
    for name in ("facts.jsonl", "schedules.jsonl", "keys.jsonl", "agent_versions.jsonl", "agents.jsonl"):
        assert (tmp_path / "c" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    await tool(tmp_path / "new", "import", str(tmp_path / "c"))
    assert (await tool(folder, "import", b)).split() == [second]
    for chat_id in (first, second):
        assert await tool(folder, "export", chat_id) == await tool(folder, "export", chat_id, url=database_url)
    assert "exists already" in await tool(folder, "import", a, url=database_url, exit_code=1)
    assert "its index with the lines" in await tool(folder, "reindex", url=database_url, exit_code=1)
    async with memory_over(folder) as embedded, memory_in(database_url) as postgres:
        for memory in (embedded, postgres):
            assert (await memory.call("GetSchedule", schedule_id=schedule.schedule_id)).schedule == schedule
            assert (await memory.call("GetKey", key_id=key.key_id)).key == key
        for chat_id, expected in ((first, before), (second, second_views)):
            # The list of chats contains the two of them now.
            assert (await load_views(embedded, chat_id))[2:] == (await load_views(postgres, chat_id))[2:]
            assert (await load_views(embedded, chat_id))[0] == (await load_views(postgres, chat_id))[0] == expected[0]
        assert [chat.chat_name for chat in (await embedded.chats()).chats] == ["水车 turns"] * 2
        assert [await memory.remember("again", "r1") for memory in (embedded, postgres)] == facts[:1] * 2
        assert len(await postgres.search("no request")) == 1
    async with memory_over(tmp_path / "new") as new:
        assert (await new.call("ReadAgentVersion", agent_key="guide", is_shared=True, version=2)).definition == "2"
        changes = await new.call("ReadAgentChanges")
        assert [(agent.agent_key, agent.definition) for agent in changes.agents] == [("brief", "{}")]
        assert await new.remember("again", "r1") == facts[0]
        assert len(await new.search("no request")) == 1


async def test_chats_of_a_database_are_pruned_while_a_service_uses_it(tmp_path: Path, database_url: str) -> None:
    async with memory_in(database_url) as memory:
        old, _ = await memory.begin_and_end("old")
        unfinished, _ = await memory.begin("still going")
        pruned = await tool(tmp_path, "prune", "--older-than", "0d", url=database_url)
        assert pruned.split() == [old]
        assert [chat.chat_id for chat in (await memory.chats()).chats] == [unfinished]
