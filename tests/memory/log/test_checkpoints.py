"""Checkpoints as users see them: listing them, and reverting to one from the list."""

import pytest

from headrace.errors import ChatBusy, InvalidRequest, NotFound
from headrace.v1 import memory_pb2
from tests.support.memory.engines import Serve
from tests.support.memory.messages import call, content, result
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines


async def add_run(memory: Memory, chat_id: str, question: str, *messages: memory_pb2.LogMessage) -> str:
    run_id = new_id()
    await memory.append(chat_id, run_id, query_line(question), *map(step_line, messages), run_line())
    return run_id


async def list_texts(memory: Memory, chat_id: str, **fields: str | int) -> list[tuple[int, str, str]]:
    listed = (await memory.checkpoints(chat_id, **fields)).checkpoints
    return [(item.checkpoint_id, item.kind, item.text) for item in listed]


@pytest.mark.parametrize("restart", [False, True])
async def test_checkpoints_are_listed_with_the_content_that_follows_them(serve: Serve, restart: bool) -> None:
    chat_id = new_id()
    async with serve() as memory:
        first = await add_run(memory, chat_id, "one", content("1"))
        second = new_id()
        step = step_line(call("c1", name="weather"), result("c1", "20°"), context_id="subagent-1")
        await memory.append(chat_id, second, query_line("two " * 100), step, run_line())
    async with serve() as memory:
        listed = (await memory.checkpoints(chat_id)).checkpoints
        assert [(item.checkpoint_id, item.n, item.run_id, item.kind) for item in listed] == [
            (3, 5, second, "step"), (2, 4, second, "query"), (1, 2, first, "step"), (0, 1, first, "query"),
        ]  # fmt: skip
        assert [item.text for item in listed] == ["", ("two " * 100)[:200], "1", "one"]
        assert (list(listed[0].tools), listed[0].stage, listed[0].context_id) == (["weather"], "react", "subagent-1")
        assert all(item.created_at > 1_700_000_000_000 for item in listed)
        if restart:
            return
        await memory.revert(chat_id, 2)
        assert await list_texts(memory, chat_id) == [(1, "step", "1"), (0, "query", "one")]
        await add_run(memory, chat_id, "three")
        assert await list_texts(memory, chat_id, kind="query") == [(2, "query", "three"), (0, "query", "one")]
        assert await list_texts(memory, chat_id, run_id=first, kind="query") == [(0, "query", "one")]
        assert await list_texts(memory, chat_id, run_id=second) == []


async def test_checkpoints_are_listed_page_by_page(memory: Memory) -> None:
    chat_id = new_id()
    for number in range(5):
        await add_run(memory, chat_id, f"q{number}", content(f"a{number}"))
    page = await memory.checkpoints(chat_id, page_size=4)
    assert [item.text for item in page.checkpoints] == ["a4", "q4", "a3", "q3"]
    queries = await memory.checkpoints(chat_id, page_size=2, kind="query", page_token=page.next_page_token)
    assert [item.text for item in queries.checkpoints] == ["q2", "q1"]
    last_page = await memory.checkpoints(chat_id, page_size=2, kind="query", page_token=queries.next_page_token)
    assert ([item.text for item in last_page.checkpoints], last_page.next_page_token) == (["q0"], "")
    for wrong in ({"page_size": 201}, {"page_size": -1}, {"page_token": "x"}, {"page_token": "-1"}):
        with pytest.raises(InvalidRequest):
            await memory.checkpoints(chat_id, **wrong)
    with pytest.raises(NotFound):
        await memory.checkpoints(new_id())


async def test_a_revert_is_refused_while_a_run_of_the_chat_is_in_progress(memory: Memory) -> None:
    chat_id = new_id()
    await add_run(memory, chat_id, "one", content("1"))
    _, run_id = await memory.begin("two", chat_id)
    with pytest.raises(ChatBusy, match="has not ended") as refused:
        await memory.revert(chat_id, 0)
    assert refused.value.metadata == {"chatId": chat_id, "runId": run_id}
    await memory.append(chat_id, run_id, run_line())
    await memory.revert(chat_id, 0)
    assert await list_texts(memory, chat_id) == []


async def test_a_run_can_revert_for_the_model_only_before_its_first_step(memory: Memory) -> None:
    """A run may revert earlier runs for the model before it starts; its own steps cannot be reverted while it runs."""
    chat_id = new_id()
    await add_run(memory, chat_id, "one", content("1"))
    _, run_id = await memory.begin("two", chat_id)
    with pytest.raises(ChatBusy):
        await memory.revert(chat_id, 0, run_id=run_id)
    await memory.revert(chat_id, 0, run_id=run_id, scope="model")
    await memory.append(chat_id, run_id, step_line(content("2")))
    with pytest.raises(ChatBusy):
        await memory.revert(chat_id, 0, run_id=run_id, scope="model")
    _, later = await memory.begin("three", chat_id)
    with pytest.raises(ChatBusy, match=run_id):
        await memory.revert(chat_id, 0, run_id=later, scope="model")


async def test_a_repeated_revert_has_no_effect_and_a_stale_one_is_not_found(memory: Memory) -> None:
    chat_id, request_id = new_id(), new_id()
    await add_run(memory, chat_id, "one", content("1"))
    await add_run(memory, chat_id, "two", content("2"))
    n = await memory.revert(chat_id, 2, n=4, request_id=request_id)
    assert await memory.revert(chat_id, 2, n=4, request_id=request_id) == n
    with pytest.raises(NotFound, match="no checkpoint 2"):
        await memory.revert(chat_id, 2, n=4)
    await add_run(memory, chat_id, "three", content("3"))
    # The id now belongs to another place: a caller who has seen the older list gets an error.
    with pytest.raises(NotFound, match="before line 8 by now, not before 4"):
        await memory.revert(chat_id, 2, n=4)
    assert await memory.revert(chat_id, 2, n=4, request_id=request_id) == n
    assert [text for _, _, text in await list_texts(memory, chat_id)] == ["3", "three", "1", "one"]
