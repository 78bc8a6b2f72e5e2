"""Token counts are stored in the log when a message is appended; ratios learned from usage are stored there too."""

import re
import struct
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import common_pb2
from services.runtime.tokens import count
from services.runtime.tokens.media_tokens import BASE_TOKENS, TILE_TOKENS
from tests.support.memory.contexts import limits, load, log_messages
from tests.support.memory.engines import Serve
from tests.support.memory.log_editing import edit_log
from tests.support.memory.messages import call, content, image, reasoning, result, user
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import Memory, new_id, run_line, step_line

pytestmark = pytest.mark.engines

COUNT = re.compile(rb'"_tokens":\{"encoding":"\w+","count":(\d+)\}')
WIDE = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1000, 400)
"""The header of an image of two tiles."""


def messages_in(folder: Path, chat_id: str) -> list[dict[str, Any]]:
    lines = map(orjson.loads, (folder / f"{chat_id}.json").read_bytes().splitlines())
    return [message for line in lines for message in line.get("messages", ())]


def rewrite(folder: Path, chat_id: str, count: bytes) -> None:
    """Put `count` in place of every count of a log."""
    path = folder / f"{chat_id}.json"
    edit_log(path, lambda line: COUNT.sub(count, line))


async def test_every_message_is_stored_with_its_count_and_encoding(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hi")
        await memory.append(chat_id, run_id, step_line(content("one two"), call("t1", "{cut"), result("t1", "水")))
    messages = [content("one two"), call("t1", "{}"), result("t1", "水")]
    expected = [count.count_message(message.message, "o200k_base") for message in messages]
    stored = [message["_tokens"] for message in messages_in(folder, chat_id)]
    assert stored == [{"encoding": "o200k_base", "count": count} for count in expected]


async def test_nothing_is_counted_again_after_a_restart(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(step_line(user("one two")), message="hi")
        before = (await load(memory, chat_id, run_id)).tokens
    rewrite(folder, chat_id, b'"_tokens":{"encoding":"o200k_base","count":500}')
    async with serve() as memory:
        assert (await load(memory, chat_id, run_id)).tokens == count.LIST_TOKENS + 2 * 500 != before


@pytest.mark.parametrize("stored", [rb"\g<0>", b'"_other":1', b'"_tokens":{"encoding":"p50k_base","count":500}'])
async def test_missing_counts_are_computed_and_a_restart_changes_nothing(
    serve: Serve, folder: Path, stored: bytes
) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(step_line(user("one two"), content("three")), message="hi")
        before = await load(memory, chat_id, run_id)
    rewrite(folder, chat_id, stored)
    async with serve() as memory:
        assert await load(memory, chat_id, run_id) == before


async def test_a_chat_is_counted_in_the_encoding_of_its_model(memory: Memory, folder: Path) -> None:
    chat_id, run_id = await memory.begin("敏捷的棕色狐狸")
    loaded = await load(memory, chat_id, run_id, limits=limits(model="gpt-4-turbo"))
    assert loaded.tokens == count.count_request(loaded.messages, (), "cl100k_base")
    await memory.append(chat_id, run_id, step_line(user("跳过了懒狗")))
    assert messages_in(folder, chat_id)[0]["_tokens"]["encoding"] == "cl100k_base"
    loaded = await load(memory, chat_id, run_id)
    assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base")


async def test_a_ratio_learned_from_usage_is_kept_after_a_restart(serve: Serve, folder: Path) -> None:
    other = limits(window=1_000_000, model="qwen3-max")
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hello " * 500)
        exact = (await load(memory, chat_id, run_id)).tokens
        for times in (2, 3):
            await load(memory, chat_id, run_id, limits=other)
            usage = common_pb2.Usage(input_tokens=times * exact)
            await memory.append(chat_id, run_id, step_line(content("a", usage=usage, msg_id=new_id())))
        before = await load(memory, chat_id, run_id, limits=other)
        assert before.tokens == pytest.approx(2.2 * exact, rel=0.05)
    async with serve() as memory:
        assert (await load(memory, chat_id, run_id, limits=other)).tokens == pytest.approx(before.tokens, abs=1)
        unknown = await load(memory, chat_id, run_id, limits=limits(window=1_000_000, model="qwen2"))
        assert unknown.tokens < 1.2 * exact, "another model has taught nothing"


async def test_an_image_is_counted_by_its_size_wherever_it_is_stored(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hi")
        blob_id = await memory.put_blob(chat_id, WIDE)
        for picture in (image(data=WIDE), image(url=f"blob:{blob_id}")):
            await memory.append(chat_id, run_id, step_line(user("", picture)))
        loaded = await load(memory, chat_id, run_id)
        assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base")
        cost = 5 + BASE_TOKENS + 2 * TILE_TOKENS
        assert [message["_tokens"]["count"] for message in messages_in(folder, chat_id)] == [cost, cost]
    rewrite(folder, chat_id, b'"_other":1')
    async with serve() as memory:
        assert (await load(memory, chat_id, run_id)).tokens == loaded.tokens


@given(st.lists(st.lists(log_messages | st.builds(reasoning, st.just(" so")), min_size=1, max_size=5), max_size=5))
async def test_sums_of_stored_counts_equal_the_counts_of_requests(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        async with memory_over(Path(name)) as memory:
            chat_id, run_id = await memory.begin("hi")
            for messages in steps:
                await memory.append(chat_id, run_id, step_line(*messages))
            loaded = await load(memory, chat_id, run_id)
            assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base")
            await memory.append(chat_id, run_id, run_line())
            _, run_id = await memory.begin("and now", chat_id)
            loaded = await load(memory, chat_id, run_id)
            assert loaded.tokens == count.count_request(loaded.messages, (), "o200k_base")
