"""Logs of Chat Memory V3 in the folder of chats: read where they are, continued, verified and deleted. And a log that
replaces another while it is being read.
"""

import asyncio
import json
import tempfile
import threading
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.errors import LogDamaged
from services.memory.importing.v3 import convert_older_log
from services.memory.log import recovery
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from tests.support.memory.admin_cli import load_next_context, tool
from tests.support.memory.engines import Serve, logs_in
from tests.support.memory.messages import content
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import Memory, events, query_line, run_line, step_line

CHAT, RUN = "8cdb2094-9dbf-47d1-a17f-bc989a236a5c", "8ad0081d-191b-4990-9432-664ea0c38c3e"

SYSTEM = {"model": "qwen3-max", "messages": [{"role": "system", "content": "Be brief."}], "stream": True}

PLAN = {"planId": "p1", "chatId": CHAT, "plan": [{"taskId": "t1", "description": "look", "status": "init"}]}


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def line(kind: str, run_id: str, at: int, **members: Any) -> dict[str, Any]:
    return {"_type": kind, "chatId": CHAT, "runId": run_id, "updatedAt": 1_771_000_000_000 + at, **members}


OLDER = [
    line("query", RUN, 0, query={
        "requestId": RUN, "chatId": CHAT, "agentKey": "writer", "role": "user", "message": "去巴黎的天气？",
        "references": [{"id": "f1", "type": "file", "name": "a.txt", "mimeType": "text/plain", "sizeBytes": 3}],
        "params": {"depth": 2}, "scene": {"url": "https://x.org/", "title": "X"}, "stream": True,
    }),
    line("step", RUN, 1, _stage="react", _seq=1, system=SYSTEM, planSnapshot=PLAN, messages=[
        {"role": "user", "content": text("去巴黎的天气？"), "ts": 1_771_000_000_001},
        {"role": "assistant", "reasoning_content": text("hm"), "_reasoningId": "reasoning_ab_1", "ts": 1},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "_toolId": "tool_ab_1",
            "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}], "ts": 2,
         "_timing": {"startedAt": 1, "endedAt": 2}, "_usage": {"prompt_tokens": 12, "completion_tokens": 3}},
        {"role": "tool", "name": "weather", "tool_call_id": "c1", "content": text("sunny"), "_toolId": "tool_ab_1"},
        {"role": "assistant", "tool_calls": [{"id": "c2", "type": "function", "_actionId": "action_ab_1",
            "function": {"name": "theme", "arguments": '{"dark":true}'}}], "ts": 3},
        {"role": "tool", "name": "theme", "tool_call_id": "c2", "content": text("OK"), "_actionId": "action_ab_1"},
    ]),
    line("step", RUN, 2, _stage="summary", _seq=2, taskId="t1", messages=[
        {"role": "assistant", "content": text("Sunny."), "_contentId": "content_ab_1", "ts": 4},
    ]),
    line("query", "mtoewf3u", 3, query={"requestId": "mtoewf3u", "agentKey": "writer", "message": "And tomorrow?",
                                        "references": None, "params": None, "scene": None}),
    line("step", "mtoewf3u", 4, _stage="oneshot", _seq=1, messages=[
        {"role": "user", "content": text("And tomorrow?"), "ts": 5},
        {"role": "assistant", "content": text("Rain."), "_contentId": "content_cd_1", "ts": 6},
    ]),
]  # fmt: skip

CONTEXT = [
    "user: 去巴黎的天气？",
    'assistant: weather{"city":"Paris"}',
    "tool: sunny",
    'assistant: theme{"dark":true}',
    "tool: OK",
    "assistant: Sunny.",
    "user: And tomorrow?",
    "assistant: Rain.",
]


def encode(lines: list[Any]) -> bytes:
    return b"".join(orjson.dumps(each) + b"\n" for each in lines)


def write_log(folder: Path, data: bytes, chat_id: str = CHAT) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{chat_id}.json"
    path.write_bytes(data)
    return path


def read_numbers(path: Path) -> list[int]:
    return [orjson.loads(each)["_n"] for each in path.read_bytes().splitlines()]


async def load_texts(memory: Memory) -> list[str]:
    return [
        event.content_snapshot.text
        for event in (await memory.chat(chat_id=CHAT)).events
        if event.HasField("content_snapshot")
    ]


@pytest.mark.parametrize("end", [b"", b'{"_type":"step","chatId":"8cdb2', b"\n\n"])
async def test_an_older_log_is_read_and_continued(serve: Serve, folder: Path, end: bytes) -> None:
    data = encode(OLDER) + end
    path = write_log(folder, data)
    async with serve() as memory:
        (chat,) = (await memory.chats()).chats
        history = await memory.chat(chat_id=CHAT)
        assert await load_next_context(memory, CHAT) == CONTEXT
        (run,) = await memory.list_unfinished()  # the one that asked for the context
        reply = await memory.append(CHAT, run.run_id, step_line(content("Dry.", events=events(5))), run_line())
        assert reply.last_n == len(read_numbers(path))
    assert (chat.chat_id, chat.chat_name, chat.first_agent_key) == (CHAT, "去巴黎的天气？", "writer")
    assert (chat.created_at, history.references[0].name) == (1_771_000_000_000, "a.txt")
    assert [event.WhichOneof("payload") for event in history.events] == [
        "request_query", "chat_start", "run_start", "reasoning_snapshot", "tool_snapshot", "tool_result",
        "action_snapshot", "action_param", "action_result", "plan_create", "content_snapshot", "run_complete",
        "request_query", "run_start", "content_snapshot", "run_complete",
    ]  # fmt: skip
    assert path.with_suffix(".json.v3").read_bytes() == data
    assert read_numbers(path) == list(range(1, len(read_numbers(path)) + 1))
    async with serve() as memory:
        assert await load_texts(memory) == ["Sunny.", "Rain.", "Dry."]
        assert not path.with_suffix(".json.damaged").exists()
        await memory.delete(CHAT)
    assert [name for name in logs_in(folder) if CHAT in name] == []
    assert not path.with_suffix(".json.v3").exists()


def make_plan(*states: str) -> dict[str, Any]:
    tasks = [{"taskId": f"t{n}", "description": "look", "status": state} for n, state in enumerate(states)]
    return {"planId": "p1", "plan": tasks}


@pytest.mark.parametrize("has_events", [False, True])
async def test_the_plan_of_an_older_chat_is_shown_once_per_change(serve: Serve, folder: Path, has_events: bool) -> None:
    stored_event = {"type": "plan.create", "seq": 9, "chatId": CHAT, **make_plan("init")}
    lines = [
        line("query", RUN, 0, query={"message": "go", "agentKey": "writer"}),
        line("step", RUN, 1, _stage="plan", _seq=1, plan=make_plan("init"), messages=[]),
        line("step", RUN, 2, _stage="execute", _seq=2, plan=make_plan("init"), messages=[]),
        *([line("event", RUN, 3, event=stored_event)] if has_events else []),
        line("step", RUN, 4, _stage="execute", _seq=3, plan=make_plan("completed", "init"), messages=[]),
    ]
    write_log(folder, encode(lines))
    async with serve() as memory:
        events = (await memory.chat(chat_id=CHAT)).events
    created = [[*event.plan_create.plan] for event in events if event.HasField("plan_create")]
    updated = [[*event.plan_update.plan] for event in events if event.HasField("plan_update")]
    assert [[task.status for task in plan] for plan in created] == [["init"]]
    assert [[task.status for task in plan] for plan in updated] == ([] if has_events else [["completed", "init"]])


async def test_a_conversion_interrupted_by_a_kill_is_repeated_at_the_next_start(serve: Serve, folder: Path) -> None:
    path = write_log(folder, encode(OLDER))
    path.with_suffix(".json.v3").write_bytes(encode(OLDER))
    async with serve() as memory:
        assert await load_texts(memory) == ["Sunny.", "Rain."]


async def test_a_log_that_appears_while_memory_runs_is_read_on_demand(memory: Memory, folder: Path) -> None:
    write_log(folder, encode(OLDER))
    assert await load_texts(memory) == ["Sunny.", "Rain."]


async def test_verify_recognises_older_logs_and_changes_nothing(serve: Serve, folder: Path) -> None:
    path = write_log(folder, encode(OLDER))
    printed = await tool(folder, "verify")
    assert f"{CHAT}: a log of Chat Memory V3, which memory converts when it first reads it\n" in printed
    assert "1 chats, 5 lines, 5 of them without a checksum: none damaged" in printed
    assert path.read_bytes() == encode(OLDER)
    async with serve() as memory:
        await memory.append(CHAT, str(uuid.uuid4()), query_line("next"))
    assert "1 chats, 9 lines: none damaged" in await tool(folder, "verify")


async def test_a_line_that_is_no_json_is_named_and_dropped(serve: Serve, folder: Path) -> None:
    path = write_log(folder, encode(OLDER[:3]) + b'{"_type":"step","chat\n' + encode(OLDER[3:]))
    assert "line 4: is no JSON object, and will be left out" in await tool(folder, "verify", exit_code=1)
    async with serve() as memory:
        assert await load_texts(memory) == ["Sunny.", "Rain."]
    assert b'{"_type":"step","chat\n' in path.with_suffix(".json.v3").read_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage\n",
        b"[1]\n",
        encode([{"some": "json"}]),
        b"garbage\n" + encode(OLDER),
        encode([{**OLDER[0], "chatId": RUN}]),
        encode([{**OLDER[0], "_n": 1}, *OLDER[1:]]),
    ],
)
async def test_a_file_that_is_no_older_log_of_its_chat_is_not_changed(serve: Serve, folder: Path, data: bytes) -> None:
    path = write_log(folder, data)
    async with serve() as memory:
        if data:
            with pytest.raises(LogDamaged):
                await memory.append(CHAT, str(uuid.uuid4()), query_line("next"))
    assert path.read_bytes() == data
    assert not path.with_suffix(".json.v3").exists()


async def test_runs_of_two_chats_may_have_the_same_short_id(serve: Serve, folder: Path) -> None:
    other = str(uuid.uuid4())
    write_log(folder, encode(OLDER))
    write_log(folder, encode([{**line_, "chatId": other} for line_ in OLDER[3:]]), other)
    async with serve() as memory:
        for chat_id in (CHAT, other):
            events = (await memory.chat(chat_id=chat_id)).events
            assert sum(event.HasField("run_complete") for event in events) == (2 if chat_id == CHAT else 1)
            last = [event.run_start.run_id for event in events if event.HasField("run_start")][-1]
            assert (await memory.chat(chat_id=chat_id, run_id=last)).events


WORDS = st.text(max_size=5) | st.sampled_from(["\ud83d", "\ude00x", "\0", "user", "step", CHAT, RUN])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def dicts_of(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Generate objects that may lack each member, or have another kind of value for it."""
    return st.fixed_dictionaries({}, optional={name: either | VALUES for name, either in members.items()})


MESSAGES = dicts_of(
    role=st.sampled_from(["user", "assistant", "tool", "system"]),
    content=WORDS.map(text) | WORDS,
    reasoning_content=WORDS.map(text),
    tool_calls=st.lists(dicts_of(id=WORDS, function=dicts_of(name=WORDS, arguments=WORDS), _toolId=WORDS), max_size=2),
    tool_call_id=WORDS, name=WORDS, ts=st.integers(), _msgId=WORDS, _toolId=WORDS, _actionId=WORDS, _contentId=WORDS,
    _reasoningId=WORDS, _timing=dicts_of(startedAt=VALUES, endedAt=VALUES), _usage=dicts_of(inputTokens=VALUES),
    _providerState=VALUES,
)  # fmt: skip
QUERIES = dicts_of(
    message=WORDS, requestId=WORDS, agentKey=WORDS, role=WORDS, references=st.lists(dicts_of(id=WORDS, meta=VALUES)),
    params=VALUES, scene=dicts_of(url=WORDS), stream=st.booleans(),
)  # fmt: skip
LINES = dicts_of(
    runId=st.sampled_from([RUN, "r1", "r2"]), updatedAt=st.integers(), uuid=WORDS, query=QUERIES, _stage=WORDS,
    _seq=st.integers(), taskId=WORDS, contextId=WORDS, system=VALUES, messages=st.lists(MESSAGES, max_size=3),
    plan=dicts_of(planId=WORDS, tasks=st.lists(dicts_of(taskId=WORDS, status=WORDS), max_size=2)), planSnapshot=VALUES,
    event=dicts_of(type=st.sampled_from(["run.notice", "approval.ask", "odd"]), seq=st.integers(), code=VALUES),
    state=WORDS, usage=dicts_of(inputTokens=VALUES), error=dicts_of(code=WORDS), version=VALUES, _lines=VALUES,
)  # fmt: skip
KINDS = st.sampled_from(["query", "step", "step", "run", "event", "state", "revert", "insight", "odd"])


def make_line(kind: str, members: dict[str, Any]) -> dict[str, Any]:
    return {**members, "_type": kind, "chatId": CHAT}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.builds(make_line, KINDS, LINES), min_size=1, max_size=6))
@example([make_line("event", {"runId": RUN, "event": {"type": "run.notice"}})])
@example(
    [make_line("query", {"runId": RUN, "updatedAt": 253_402_300_800_000, "query": {"message": "In the year 10000"}})]
)
async def test_any_older_log_is_served_and_continued(lines: list[dict[str, Any]]) -> None:
    data = "".join(json.dumps(line_) + "\n" for line_ in lines).encode()
    with tempfile.TemporaryDirectory() as name:
        path = write_log(Path(name), data)
        async with asyncio.timeout(100), memory_over(Path(name)) as memory:
            events = (await memory.chat(chat_id=CHAT, include_raw_messages=True)).events
            assert not events or events[0].HasField("request_query")
            _, run_id = await memory.begin("next", CHAT)
            assert (await memory.context(CHAT, run_id))[-1].content[0].text == "next"
            await memory.append(CHAT, run_id, step_line(content("Yes.")), run_line())
            assert await memory.search("next")
        assert read_numbers(path) == list(range(1, len(read_numbers(path)) + 1))
        assert not recovery.read_log(path.read_bytes(), CHAT).is_damaged


def test_a_conversion_always_gives_the_same_result() -> None:
    first, second = convert_older_log(CHAT, encode(OLDER)), convert_older_log(CHAT, encode(OLDER))
    assert first is not None
    assert second is not None
    runs = [[each.run_id for each in recovery.read_log(found.log, CHAT).lines] for found in (first, second)]
    assert runs[0] == runs[1]


TIMEOUT_S = 100.0


async def test_an_export_during_a_rewrite_waits_for_the_new_log(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin_and_end("how does a mill work?")
    has_started, may_continue = threading.Event(), threading.Event()

    def redact(log: bytes) -> bytes:
        has_started.set()
        may_continue.wait(TIMEOUT_S)
        return log.replace(b"mill", b"something else")

    with closing(Disk(folder)) as disk:
        async with asyncio.timeout(TIMEOUT_S), open_files(disk) as engine, asyncio.TaskGroup() as group:
            redacting = group.create_task(engine.eraser.rewrite_chat(chat_id, redact))
            await asyncio.to_thread(has_started.wait, TIMEOUT_S)
            # It has the length of the former log, and would cut the new one there.
            exporting = group.create_task(engine.chats.export(await engine.chats.load(chat_id)))
            await asyncio.wait([exporting], timeout=0.2)
            assert not exporting.done()
            may_continue.set()
            await redacting
            assert await exporting == (folder / f"{chat_id}.json").read_bytes()
            assert b"something else" in await exporting
