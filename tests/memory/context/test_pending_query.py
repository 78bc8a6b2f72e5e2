"""LoadContext for a run whose query is not stored yet: it returns what it will return once the query is in the log."""

from typing import Any

import pytest

from headrace.errors import NotFound
from headrace.v1 import agent_pb2, memory_pb2
from tests.support.memory.contexts import load
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line


async def load_with_reminder(
    memory: Memory, chat_id: str, run_id: str, **fields: Any
) -> memory_pb2.LoadContextResponse:
    return await load(memory, chat_id, run_id, system="Be brief.", reminders=["now"], **fields)


@pytest.mark.parametrize("runs", [0, 1, 3])
async def test_a_pending_query_is_loaded_as_if_it_were_stored(memory: Memory, runs: int) -> None:
    chat_id, run_id = new_id(), new_id()
    for number in range(runs):
        _, earlier = await memory.begin(f"question {number}", chat_id)
        await memory.append(chat_id, earlier, step_line(content(f"answer {number}")), run_line())
    line = query_line("and this?")
    before = await load_with_reminder(memory, chat_id, run_id, pending_query=line.query.query)
    await memory.append(chat_id, run_id, line)
    after = await load_with_reminder(memory, chat_id, run_id)
    assert before == after
    assert after.messages[-1].content[0].text == "and this?"
    assert len(after.messages) == 2 + 2 * runs


async def test_a_stored_query_takes_precedence_over_the_pending_one(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(step_line(content("and answered")), message="as it was stored")
    other = agent_pb2.QueryRequest(message="something else")
    assert await load_with_reminder(memory, chat_id, run_id, pending_query=other) == await load_with_reminder(
        memory, chat_id, run_id
    )


async def test_loading_with_a_pending_query_stores_nothing(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    await load_with_reminder(memory, chat_id, run_id, pending_query=agent_pb2.QueryRequest(message="hello"))
    assert not (await memory.chats()).chats
    with pytest.raises(NotFound):
        await load_with_reminder(memory, chat_id, run_id)


def begin_request(chat_id: str, run_id: str, **context: Any) -> memory_pb2.BeginRunRequest:
    ids: dict[str, Any] = {"chat_id": chat_id, "run_id": run_id}
    append = memory_pb2.AppendRequest(**ids, request_id=run_id, lines=[query_line("hello")], owner="a:1", ttl_ms=1000)
    return memory_pb2.BeginRunRequest(append=append, context=memory_pb2.LoadContextRequest(**ids, **context))


@pytest.mark.engines
async def test_begin_run_returns_what_the_first_turn_needs(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    request = begin_request(chat_id, run_id, system="Be brief.", reminders=["now"])
    response = await memory.stub.BeginRun(request)
    assert (response.append.first_n, response.append.chat_created, response.state.state) == (1, True, "{}")
    assert response.context.messages == (await load_with_reminder(memory, chat_id, run_id)).messages
    [run] = await memory.list_unfinished()
    assert (run.run_id, run.owner, run.generation) == (run_id, "a:1", 0)
    assert await memory.stub.BeginRun(request) == response, "asked again, because the answer was lost"
    assert len(await memory.list_unfinished()) == 1


@pytest.mark.engines
async def test_begin_run_with_a_repeated_query_starts_no_run(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    request = begin_request(chat_id, run_id)
    request.append.lines[0].query.query.request_id = "mine"
    await memory.stub.BeginRun(request)
    request.append.run_id = request.append.request_id = new_id()
    repeated = await memory.stub.BeginRun(request)
    assert repeated == memory_pb2.BeginRunResponse(append=repeated.append)
    assert repeated.append.duplicate_run_id == run_id


@pytest.mark.engines
async def test_a_run_starts_even_if_the_context_of_its_first_turn_cannot_be_loaded(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    narrow = memory_pb2.ModelLimits(provider_key="p", model="m", context_window_tokens=1)
    response = await memory.stub.BeginRun(begin_request(chat_id, run_id, limits=narrow))
    assert (response.append.first_n, response.state.state, response.HasField("context")) == (1, "{}", False)
    await memory.append(chat_id, run_id, run_line())
    await memory.update_state(chat_id, 0, '{"a":1}')
    response = await memory.stub.BeginRun(begin_request(chat_id, new_id()))
    assert (response.state.version, response.state.state, response.HasField("context")) == (1, '{"a":1}', False)
