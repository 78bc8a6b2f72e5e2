"""Session state: updated by compare-and-set, stored in the log, one per context."""

import asyncio

import orjson
import pytest

from headrace.errors import InvalidRequest, NotFound, StaleLease
from tests.support.memory.engines import Kept, Serve
from tests.support.memory.messages import user
from tests.support.memory.writing import Memory, new_id, run_line, step_line

pytestmark = pytest.mark.engines


async def test_a_context_without_state_has_an_empty_object(memory: Memory) -> None:
    chat_id, _ = await memory.begin()
    assert await memory.state(chat_id) == (0, "{}")
    with pytest.raises(NotFound):
        await memory.state(new_id())


@pytest.mark.parametrize("restart", [False, True])
async def test_the_log_stores_only_what_has_changed(serve: Serve, kept: Kept, restart: bool) -> None:
    big = "123456789012345678901234567890.10"
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        assert await memory.update_state(chat_id, 0, '{"todos":["a"],"n": ' + big + ',"gone":null}', run_id=run_id) == 1
        assert await memory.update_state(chat_id, 1, '{"todos":["a","b"],"n":' + big + "}", context_id="main") == 2
        assert await memory.update_state(chat_id, 0, '{"loops":1}', context_id="subagent-12345678") == 1
        state = (2, '{"todos":["a","b"],"n":' + big + "}")
        if not restart:
            assert await memory.state(chat_id) == state
    async with serve() as memory:
        assert await memory.state(chat_id) == await memory.state(chat_id, "main") == state
        assert await memory.state(chat_id, "subagent-12345678") == (1, '{"loops":1}')
    lines = [orjson.loads(line) for line in (await kept.log(chat_id)).splitlines()]
    assert (lines[1]["_type"], lines[1]["runId"], lines[1]["version"]) == ("state", run_id, 1)
    assert {key: lines[2][key] for key in ("version", "set", "unset")} == {
        "version": 2, "set": {"todos": ["a", "b"]}, "unset": ["gone"],
    }  # fmt: skip
    assert lines[3]["contextId"] == "subagent-12345678"


async def test_only_one_of_several_simultaneous_updates_succeeds(memory: Memory) -> None:
    chat_id, _ = await memory.begin()
    async with asyncio.timeout(100):
        updates = (memory.update_state(chat_id, 0, f'{{"n":{index}}}') for index in range(20))
        replies = await asyncio.gather(*updates, return_exceptions=True)
    assert replies.count(1) == 1
    assert sum(isinstance(reply, StaleLease) for reply in replies) == 19
    assert (await memory.state(chat_id))[0] == 1


@pytest.mark.parametrize("state", ["[]", "1", '"x"', "null"])
async def test_a_state_that_is_no_object_is_rejected(memory: Memory, state: str) -> None:
    chat_id, _ = await memory.begin()
    with pytest.raises(InvalidRequest):
        await memory.update_state(chat_id, 0, state)


async def test_a_stale_or_ended_run_cannot_change_the_state(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    await memory.append(chat_id, run_id, step_line(user("a")), generation=2)
    with pytest.raises(StaleLease):
        await memory.update_state(chat_id, 0, "{}", run_id=run_id, generation=1)
    await memory.append(chat_id, run_id, run_line(), generation=2)
    with pytest.raises(StaleLease):
        await memory.update_state(chat_id, 0, "{}", run_id=run_id, generation=2)
    with pytest.raises(NotFound):
        await memory.update_state(chat_id, 0, "{}", run_id=new_id())
    assert await memory.update_state(chat_id, 0, "{}") == 1
