"""Reverting to a checkpoint: in every view, repeatedly, and after a restart."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headrace.errors import NotFound, StaleLease
from headrace.v1 import memory_pb2
from services.memory.log.chat import Chat
from services.memory.log.lines import Known, Query, Revert, Run, State, Step, decode_line, encode_line
from services.memory.log.messages import Range
from tests.support.memory.contexts import list_texts
from tests.support.memory.engines import Serve
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, events, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines


async def list_visible_texts(memory: Memory, chat_id: str) -> list[str]:
    """Return the texts that users see, in events and raw messages, which must agree."""
    chat = await memory.chat(chat_id=chat_id, include_raw_messages=True)
    texts = [
        event.request_query.message or event.content_snapshot.text
        for event in chat.events
        if event.WhichOneof("payload") in ("request_query", "content_snapshot")
    ]
    raw = [message["content"][0]["text"] for message in orjson.loads(chat.raw_messages)]
    assert sorted(raw) == sorted(texts), "events go run by run, raw messages line by line"
    return texts


async def add_run(memory: Memory, chat_id: str, question: str, answer: str) -> str:
    run_id = new_id()
    await memory.append(chat_id, run_id, query_line(question), make_answer(answer), run_line())
    return run_id


def make_answer(text: str) -> memory_pb2.LogLine:
    return step_line(content(text, events=events(5)))


async def test_appends_return_their_checkpoint(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    assert (await memory.append(chat_id, run_id, query_line())).checkpoint_id == 0
    request_id = new_id()
    steps = [step_line(content("a")), step_line(content("b"))]
    first = await memory.append(chat_id, run_id, *steps, request_id=request_id)
    assert first.checkpoint_id == 1
    assert (await memory.append(chat_id, run_id, step_line(content("c")))).checkpoint_id == 3
    assert await memory.append(chat_id, run_id, *steps, request_id=request_id) == first


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("restart", [False, True])
async def test_a_revert_restores_the_view_and_later_checkpoints_are_numbered_from_there(
    serve: Serve, restart: bool
) -> None:
    chat_id = new_id()
    async with serve() as memory:
        await add_run(memory, chat_id, "one", "1")
        await add_run(memory, chat_id, "two", "2")
        assert await memory.revert(chat_id, 2) == 7
        if not restart:
            assert await list_visible_texts(memory, chat_id) == ["one", "1"]
    async with serve() as memory:
        assert await list_visible_texts(memory, chat_id) == ["one", "1"]
        run_id = new_id()
        assert (await memory.append(chat_id, run_id, query_line("three"))).checkpoint_id == 2
        assert await list_texts(memory, chat_id, run_id) == ["one", "1", "three"]
        assert await list_visible_texts(memory, chat_id) == ["one", "1", "three"]


async def test_a_revert_for_the_model_does_not_change_what_users_see(memory: Memory) -> None:
    chat_id = new_id()
    await add_run(memory, chat_id, "one", "1")
    await add_run(memory, chat_id, "two", "2")
    await memory.revert(chat_id, 2, scope="model")
    run_id = new_id()
    assert (await memory.append(chat_id, run_id, query_line("three"))).checkpoint_id == 4
    assert await list_texts(memory, chat_id, run_id) == ["one", "1", "three"]
    assert await list_visible_texts(memory, chat_id) == ["one", "1", "two", "2", "three"]
    await memory.append(chat_id, run_id, run_line())
    # At checkpoint 3 the model still saw everything.
    await memory.revert(chat_id, 3)
    _, run_id = await memory.begin("four", chat_id)
    assert await list_texts(memory, chat_id, run_id) == ["one", "1", "two", "four"]
    assert await list_visible_texts(memory, chat_id) == ["one", "1", "two", "four"]


async def test_a_revert_keeps_the_query_of_an_unfinished_run(serve: Serve) -> None:
    chat_id = new_id()
    async with serve() as memory:
        cancelled = (await memory.begin("wrong", chat_id))[1]
        _, waiting = await memory.begin("right", chat_id)
        await memory.append(chat_id, cancelled, make_answer("late"), run_line("cancelled"))
        await memory.revert(chat_id, 0, scope="model", run_id=waiting)
        assert await list_texts(memory, chat_id, waiting) == ["right"]
        await memory.append(chat_id, waiting, make_answer("yes"))
        before = await list_texts(memory, chat_id, waiting)
    async with serve() as memory:
        assert await list_texts(memory, chat_id, waiting) == before == ["right", "yes"]
        assert await list_visible_texts(memory, chat_id) == ["wrong", "late", "right", "yes"]


async def test_a_stale_owner_cannot_revert(memory: Memory) -> None:
    chat_id = new_id()
    await add_run(memory, chat_id, "one", "1")
    _, run_id = await memory.begin("go", chat_id)
    await memory.acquire(chat_id, run_id, "127.0.0.1:7001")
    with pytest.raises(StaleLease):
        await memory.revert(chat_id, 1, run_id=run_id, scope="model")
    await memory.revert(chat_id, 1, run_id=run_id, scope="model", generation=1)
    assert await list_texts(memory, chat_id, run_id) == ["one", "go"]


@pytest.mark.parametrize("checkpoint", [-1, 2, 99])
async def test_a_missing_checkpoint_is_not_found(memory: Memory, checkpoint: int) -> None:
    chat_id = new_id()
    await add_run(memory, chat_id, "one", "1")
    with pytest.raises(NotFound, match="no checkpoint"):
        await memory.revert(chat_id, checkpoint)
    with pytest.raises(NotFound, match="does not exist"):
        await memory.revert(new_id(), 0)


async def test_reverted_runs_are_not_listed_or_found_but_stay_in_the_log(memory: Memory) -> None:
    chat_id = new_id()
    await add_run(memory, chat_id, "one", "1")
    run_id = await add_run(memory, chat_id, "cucumber", "2")
    assert len(await memory.search("cucumber")) == 1
    await memory.revert(chat_id, 2)
    assert await memory.search("cucumber") == []
    repeated = await memory.append(chat_id, new_id(), query_line("cucumber", request_id="again"))
    assert repeated.first_n == 8
    assert (await memory.chat(run_id=run_id)).events == []


async def test_a_revert_restores_the_state_with_a_new_version(serve: Serve) -> None:
    chat_id = new_id()
    async with asyncio.timeout(200), serve() as memory:
        await add_run(memory, chat_id, "one", "1")
        await memory.update_state(chat_id, 0, '{"todos":["a"],"loops":1}')
        await add_run(memory, chat_id, "two", "2")
        await memory.update_state(chat_id, 1, '{"loops":2}')
        await memory.update_state(chat_id, 0, '{"x":1}', context_id="subagent-1")
        await memory.revert(chat_id, 2)
        before = [await memory.state(chat_id), await memory.state(chat_id, "subagent-1")]
        with pytest.raises(StaleLease):
            await memory.update_state(chat_id, 2, "{}")
    async with serve() as memory:
        assert [await memory.state(chat_id), await memory.state(chat_id, "subagent-1")] == before
        assert before == [(3, '{"todos":["a"],"loops":1}'), (2, "{}")]
        assert await memory.update_state(chat_id, 3, "{}") == 4


# The rule in its simplest form: a revert drops the lines after its checkpoint, and keeps the queries of open runs.

Lines = list[Known]


def compute_views(log: Lines) -> tuple[Lines, Lines]:
    """Return the lines that users see, and those that a model sees."""
    visible: Lines = []
    model_lines: Lines = []
    views: list[tuple[Lines, Lines]] = []
    marks: list[int] = []
    is_open: dict[str, Known] = {}
    places: dict[str, int] = {}
    for line in log:
        if isinstance(line, Revert):
            checkpoint = line.to_checkpoint_id
            visible_before, model_before = views[marks[checkpoint]]
            kept = [query for run_id, query in is_open.items() if places[run_id] >= checkpoint]
            model_lines = [*model_before, *kept]
            if line.scope == "all":
                visible, marks = list(visible_before), marks[:checkpoint]
                for query in kept:
                    views.append((list(visible), [*model_before, *[item for item in kept if item in visible]]))
                    places[query.run_id] = len(marks)
                    marks.append(len(views) - 1)
                    visible.append(query)
            continue
        if isinstance(line, Query | Step):
            views.append((list(visible), list(model_lines)))
            if isinstance(line, Query):
                places[line.run_id] = len(marks)
                is_open[line.run_id] = line
            marks.append(len(views) - 1)
        elif isinstance(line, Run):
            is_open.pop(line.run_id, None)
        visible.append(line)
        model_lines.append(line)
    return visible, model_lines


STAMP: dict[str, Any] = {"chat_id": "c", "updated_at": 1, "tenant": "", "user": "", "generation": 0}


@given(st.lists(st.tuples(st.sampled_from(["query", "step", "end", "all", "model", "state"]), st.integers(0, 7))))
def test_any_sequence_of_reverts_matches_the_rule(moves: list[tuple[str, int]]) -> None:
    chat = Chat.from_lines("c", [], 0, is_damaged=False)
    log: Lines = []
    for kind, number in moves:
        run_id = f"r{number % 3}"
        stamp = STAMP | {"n": len(log) + 1, "uuid": str(len(log)), "run_id": run_id}
        line = _line(kind, number, stamp, chat)
        if line is None:
            continue
        chat.info.add_line(line)
        chat.commit_lines([line])
        log.append(line)
        visible, model_lines = compute_views(log)
        assert _numbers(chat.visible_runs) == sorted(line.n for line in visible)
        assert _numbers(chat.model_runs) == sorted(line.n for line in model_lines)
        assert chat.info.checkpoints == sum(isinstance(line, Query | Step) for line in visible)
    again = Chat.from_lines(
        "c", [line for text in map(encode_line, log) if (line := decode_line(text[:-1]))], 0, is_damaged=False
    )
    assert (_numbers(again.visible_runs), _numbers(again.model_runs)) == (
        _numbers(chat.visible_runs),
        _numbers(chat.model_runs),
    )
    assert again.states == chat.states


def _line(kind: str, number: int, stamp: dict[str, Any], chat: Chat) -> Known | None:
    """Return a line of this kind, if the chat can take one."""
    run = chat.info.runs.get(stamp["run_id"])
    own: dict[str, Any] = {**stamp, "run_id": ""}
    match kind:
        case "all" | "model":
            is_there = number < chat.info.checkpoints
            return Revert(**own, to_checkpoint_id=number, scope=kind) if is_there else None
        case "state":
            version = chat.info.state_versions.get("", 0) + 1
            return State(**own, version=version, changed={}, removed=[])
        case "query":
            return None if run else Query(**stamp, query=Raw(b'{"message":"x"}'))
        case _ if run is None or run.is_ended:
            return None
        case "step":
            return Step(**stamp, stage="react", seq=1, messages=[])
        case _:
            return Run(**stamp, state="completed", events=Range(9, 9))


def _numbers(runs: dict[str, list[Any]]) -> list[int]:
    return sorted(line.n for lines in runs.values() for line in lines)
