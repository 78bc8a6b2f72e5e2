"""Export, import, prune and reindex as an operator runs them: one process each, over a folder."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.runtime.clock import CLOCK
from tests.support.memory.admin_cli import load_next_context, tool
from tests.support.memory.clocks import Later
from tests.support.memory.engines import Serve, logs_in
from tests.support.memory.log_editing import edit_log
from tests.support.memory.messages import PICTURE, content, user
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line


async def add_chat(memory: Memory, question: str, answer: str) -> str:
    chat_id = new_id()
    await memory.append(chat_id, new_id(), query_line(question), step_line(content(answer)), run_line())
    return chat_id


async def test_an_exported_chat_is_imported_unchanged(serve: Serve, folder: Path, tmp_path: Path) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin_with(step_line(user("look", PICTURE)), run_line(), message="水车")
        await memory.update_state(chat_id, 0, '{"big":123456789012345678901234567890.10}')
        before = await memory.chat(chat_id=chat_id, include_raw_messages=True)
        other = await add_chat(memory, "another", "one")
    printed = await tool(folder, "export", chat_id)
    assert len(printed.splitlines()) == 5
    assert await tool(folder, "export", "--output", str(tmp_path / "out")) == ""
    assert (tmp_path / "out" / f"{chat_id}.jsonl").read_text() == printed
    target = tmp_path / "there"
    assert sorted((await tool(target, "import", str(tmp_path / "out"))).split()) == sorted([chat_id, other])
    assert (target / f"{chat_id}.json").read_bytes() == (folder / f"{chat_id}.json").read_bytes()
    assert "exists already" in await tool(target, "import", str(tmp_path / "out"), exit_code=1)
    for name in logs_in(folder):
        (folder / name).write_bytes((target / name).read_bytes())
    async with serve() as memory:
        assert await memory.chat(chat_id=chat_id, include_raw_messages=True) == before


async def test_prune_deletes_old_chats_whose_runs_have_ended(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        old = await add_chat(memory, "old", "1")
        new = await add_chat(memory, "new", "2")
        unfinished, _ = await memory.begin("still going")
    for chat_id in (old, unfinished):
        edit_log(
            folder / f"{chat_id}.json", lambda line: orjson.dumps(orjson.loads(line) | {"updatedAt": 1_700_000_000_000})
        )
    assert (await tool(folder, "prune", "--older-than", "7d")).split() == [old]
    assert logs_in(folder) == sorted(f"{chat_id}.json" for chat_id in (new, unfinished))
    assert "expected an age" in await tool(folder, "prune", "--older-than", "soon", exit_code=2)


async def test_verify_names_each_damaged_log(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chats = [await add_chat(memory, f"hello {index}", str(index)) for index in range(3)]
        assert (await tool(folder, "verify")).splitlines()[-1].endswith("lines: none damaged")
    whole = (folder / f"{chats[1]}.json").read_bytes()
    (folder / f"{chats[1]}.json").write_bytes(whole.replace(b"hello 1", b"hello 2", 1))
    with (folder / f"{chats[2]}.json").open("ab") as log:
        log.write(b'{"_type":"st')
    output = (await tool(folder, "verify", exit_code=1)).splitlines()
    assert output[:-1] == sorted(
        [
            f"{chats[1]}: line 1 (byte 0): its checksum is wrong",
            f"{chats[2]}: the last 12 bytes are of an append that was never acknowledged",
        ]
    )
    assert output[-1].startswith("3 chats")
    assert output[-1].endswith("1 damaged")
    assert (await tool(folder, "verify", chats[0])).startswith("1 chats")


@pytest.mark.parametrize("command", ["verify", "export"])
async def test_an_invalid_chat_id_is_rejected_with_its_value(serve: Serve, folder: Path, command: str) -> None:
    async with serve():
        pass
    assert "'../chat': expected a chat's id, a UUID" in await tool(folder, command, "../chat", exit_code=2)


async def test_reindex_reads_every_log_again(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin("hello")
        assert await memory.acquire(chat_id, run_id, "a:1") == 1
        before = [await memory.chats(), await memory.list_unfinished(), await memory.search("hello")]
    assert await tool(folder, "reindex") == "1 chats\n"
    async with serve() as memory:
        assert [await memory.chats(), await memory.list_unfinished(), await memory.search("hello")] == before
    (folder / "index.sqlite").write_bytes(b"garbage")
    assert await tool(folder, "reindex") == "1 chats\n"
    async with serve() as memory:
        assert await memory.chats() == before[0]


async def test_a_folder_owned_by_a_running_service_is_not_touched(serve: Serve, folder: Path) -> None:
    async with serve() as memory:
        await add_chat(memory, "a", "b")
        for command in (["reindex"], ["export"], ["prune", "--older-than", "0d"], ["import", str(folder)]):
            assert "belongs to another memory service" in await tool(folder, *command, exit_code=1)
    assert "no chats" in await tool(folder / "nowhere", "reindex", exit_code=1)


async def test_the_service_prunes_old_chats_when_a_retention_is_set(tmp_path: Path, serve: Serve, folder: Path) -> None:
    clock = CLOCK.set(Later(-2))
    async with serve() as memory:
        chat_id = await add_chat(memory, "old", "1")
    CLOCK.reset(clock)
    env = {
        "PATH": os.environ["PATH"],
        "HEADRACE_MEMORY_CHAT_DIR": str(folder),
        "HEADRACE_MEMORY_LISTEN": "127.0.0.1:0",
        "HEADRACE_MEMORY_CHAT_RETENTION_DAYS": "1",
    }
    async with asyncio.timeout(300):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.memory", env=env, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        while b'"chats tidied"' not in (line := await process.stderr.readline()):
            assert line
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
    assert f"{chat_id}.json" not in logs_in(folder)


V3 = [
    {"_type": "query", "chatId": "old-chat", "runId": "run-1", "updatedAt": 1_700_000_000_000,
     "query": {"requestId": "q", "agentKey": "writer", "role": "user", "message": "Weather in Paris?"}},
    {"_type": "step", "chatId": "old-chat", "runId": "run-1", "updatedAt": 1_700_000_001_000, "_stage": "react",
     "system": {"role": "system", "content": "Be brief."},
     "planSnapshot": {"planId": "p1", "plan": [{"taskId": "t1", "description": "look", "status": "init"}]},
     "messages": [
         {"role": "user", "content": [{"type": "text", "text": "Weather in Paris?"}], "ts": 1},
         {"role": "assistant", "reasoning_content": [{"type": "text", "text": "hm"}], "_reasoningId": "reasoning_ab_1"},
         {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "_toolId": "tool_ab_1",
            "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}]},
         {"role": "tool", "name": "weather", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}],
          "_toolId": "tool_ab_1"},
         {"role": "assistant", "content": "Sunny.", "_contentId": "content_ab_1"},
     ]},
    {"_type": "query", "chatId": "old-chat", "runId": "run-2", "updatedAt": 1_700_000_002_000,
     "query": {"message": "And tomorrow?"}},
    {"_type": "step", "chatId": "old-chat", "runId": "run-2", "updatedAt": 1_700_000_003_000, "messages": [
        {"role": "assistant", "content": "Rain.",
         "tool_calls": [{"id": "c2", "function": {"name": "x", "arguments": "{cut"}}]}]},
    {"_type": "whatever", "chatId": "old-chat", "odd": [1]},
]  # fmt: skip

BLADE = [
    {"uuid": "1", "parentUuid": None, "type": "user", "timestamp": "2024-05-01T10:00:00Z",
     "message": {"role": "user", "content": "Weather in Paris?"}},
    {"uuid": "x", "parentUuid": "1", "type": "assistant", "message": {"role": "assistant", "content": "edited away"}},
    {"uuid": "2", "parentUuid": "1", "type": "assistant", "timestamp": 1_714_557_600,
     "message": {"role": "assistant", "content": [
         {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I will look."},
         {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}]}},
    {"uuid": "3", "parentUuid": "2", "type": "user", "timestamp": 1_714_557_601_000,
     "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]}},
    {"uuid": "4", "parentUuid": "3", "type": "tool_use", "id": "c2", "name": "map", "input": {}},
    {"uuid": "5", "parentUuid": "4", "type": "tool_result", "tool_use_id": "c2",
     "content": [{"type": "text", "text": "there"}]},
    {"uuid": "6", "parentUuid": "5", "type": "assistant", "role": "assistant", "content": "Sunny."},
    {"uuid": "7", "parentUuid": "6", "type": "user", "message": {"role": "user", "content": "And tomorrow?"}},
    {"uuid": "8", "parentUuid": "7", "type": "assistant", "message": {"role": "assistant", "content": "Rain."}},
]  # fmt: skip

COMPACTED = [
    *BLADE,
    {"uuid": "9", "parentUuid": None, "logicalParentUuid": "8", "type": "system", "subtype": "compact_boundary",
     "content": "Conversation compacted", "compactMetadata": {"trigger": "auto", "preTokens": 900}},
    {"uuid": "10", "parentUuid": "9", "type": "user", "isCompactSummary": True,
     "message": {"role": "user", "content": "They asked for the weather."}},
    {"uuid": "11", "parentUuid": "10", "type": "user", "message": {"role": "user", "content": "Thanks."}},
    {"uuid": "12", "parentUuid": "11", "type": "assistant", "message": {"role": "assistant", "content": "Gladly."}},
]  # fmt: skip


async def import_chat(folder: Path, tmp_path: Path, entries: list[dict[str, Any]]) -> str:
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return (await tool(folder, "import", str(path))).strip()


async def test_v3_logs_are_read_with_their_old_names(serve: Serve, folder: Path, tmp_path: Path) -> None:
    chat_id = await import_chat(folder, tmp_path, V3)
    lines = [orjson.loads(line) for line in (folder / f"{chat_id}.json").read_bytes().splitlines()]
    assert [line["_n"] for line in lines] == list(range(1, 9))
    assert lines[1]["plan"] == {
        "planId": "p1", "tasks": [{"taskId": "t1", "description": "look", "status": "init"}],
    }  # fmt: skip
    assert lines[1]["system"] == "Be brief."
    assert lines[1]["messages"][2]["_toolId"] == "tool_ab_1"
    steps = [line for line in lines if line["_type"] == "step"]
    assert steps[1]["messages"][1]["_rawArguments"] == "{cut"
    async with serve() as memory:
        payloads = [event.WhichOneof("payload") for event in (await memory.chat(chat_id=chat_id)).events]
        assert payloads == [
            "request_query", "chat_start", "run_start", "reasoning_snapshot", "tool_snapshot", "tool_result",
            "content_snapshot", "plan_create", "run_complete", "request_query", "run_start", "content_snapshot",
            "tool_snapshot", "run_complete",
        ]  # fmt: skip
        assert await load_next_context(memory, chat_id) == [
            "user: Weather in Paris?",
            'assistant: weather{"city":"Paris"}',
            "tool: sunny",
            "assistant: Sunny.",
            "user: And tomorrow?",
            "assistant: Rain.x{}",
            'tool: {"ok":false,"error":"interrupted"}',
        ]


async def test_blade_style_entries_are_imported_along_the_path_to_the_last_one(
    serve: Serve, folder: Path, tmp_path: Path
) -> None:
    chat_id = await import_chat(folder, tmp_path, BLADE)
    async with serve() as memory:
        (chat,) = (await memory.chats()).chats
        assert (chat.created_at, chat.chat_name) == (1_714_557_600_000, "Weather in Paris?")
        assert await load_next_context(memory, chat_id) == [
            "user: Weather in Paris?",
            'assistant: I will look.weather{"city": "Paris"}',
            "tool: sunny",
            "assistant: map{}",
            "tool: there",
            "assistant: Sunny.",
            "user: And tomorrow?",
            "assistant: Rain.",
        ]


async def test_an_imported_summary_replaces_the_messages_before_it(serve: Serve, folder: Path, tmp_path: Path) -> None:
    chat_id = await import_chat(folder, tmp_path, COMPACTED)
    async with serve() as memory:
        assert await load_next_context(memory, chat_id) == [
            "user: They asked for the weather.",
            "user: Thanks.",
            "assistant: Gladly.",
        ]
        assert len((await memory.chat(chat_id=chat_id)).events) > 20


def make_user_entry(uuid: str, parent: str | None, *content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": list(content)}
    return {"uuid": uuid, "parentUuid": parent, "type": "user", "message": message, **more}


def make_assistant_entry(uuid: str, parent: str, *content: Any, of: str = "", **more: Any) -> dict[str, Any]:
    message = {"id": of or uuid, "role": "assistant", "content": list(content)}
    return {"uuid": uuid, "parentUuid": parent, "type": "assistant", "message": message, **more}


def make_tool_use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}}


def make_tool_result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": f"result {call_id}"}


PDF, NAN = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}, float("nan")
FIRST_CALL = [make_user_entry("1", None, "Go."), make_assistant_entry("2", "1", make_tool_use("a"))]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param(  # github.com/apache/maka/pull/3435: each result's parent is its own call
            [
                *(
                    make_user_entry("1", None, "Go."),
                    make_assistant_entry("2", "1", make_tool_use("a"), of="m"),
                    make_assistant_entry("3", "2", make_tool_use("b"), of="m"),
                ),
                make_user_entry("x", "2", make_tool_result("a"), "Withdrawn."),
                *(
                    make_user_entry("4", "2", make_tool_result("a")),
                    make_user_entry("5", "3", make_tool_result("b")),
                    make_assistant_entry("6", "5", "Done."),
                ),
            ],
            ["user: Go.", "assistant: look{}look{}", "tool: result a", "tool: result b", "assistant: Done."],
            id="parallel calls",
        ),
        pytest.param(
            [
                *FIRST_CALL,
                make_user_entry("3", "2", make_tool_result("a"), "Stop."),
                make_assistant_entry("4", "3", "Well."),
            ],
            ["user: Go.", "assistant: look{}", "tool: result a", "user: Stop.", "assistant: Well."],
            id="a result and a text in one entry",
        ),
        pytest.param(  # github.com/anthropics/claude-code/issues/22526
            [
                make_user_entry("1", None, "Go."),
                make_assistant_entry("2", "1", "Gone."),
                make_user_entry("3", "lost", "And?"),
                make_assistant_entry("4", "3", "Well."),
            ],
            ["user: Go.", "assistant: Gone.", "user: And?", "assistant: Well."],
            id="a parent that is not there",
        ),
        pytest.param(
            [
                *FIRST_CALL,
                *(make_user_entry("3", "2", make_tool_result("a")), make_assistant_entry("4", "3", "Done.")),
                *(
                    make_user_entry("s", None, "Look.", isSidechain=True),
                    make_assistant_entry("t", "s", "Seen.", isSidechain=True),
                ),
            ],
            ["user: Go.", "assistant: look{}", "tool: result a", "assistant: Done."],
            id="a sub-agent's entries last",
        ),
        pytest.param(
            [
                make_user_entry("1", None, "See.", {"type": "document", "title": "a.pdf", "source": PDF}),
                *(
                    make_assistant_entry(
                        "2",
                        "1",
                        {"type": "redacted_thinking", "data": "c2VjcmV0"},
                        make_tool_use("a") | {"input": {"x": NAN}},
                    ),
                ),
                *(
                    make_user_entry(
                        "3", "2", make_tool_result("a") | {"content": [{"type": "document", "source": PDF}]}
                    ),
                    make_assistant_entry("4", "3", "Ok."),
                ),
            ],
            [
                *("user: See.", "user: [file: a.pdf, read_history 2 shows it again]", 'assistant: look{"x": "NaN"}'),
                *('tool: [file: , read_result "a" shows it again]', "assistant: Ok."),
            ],
            id="documents, and what is no JSON",
        ),
    ],
)
async def test_transcripts_keep_the_whole_conversation(
    serve: Serve, folder: Path, tmp_path: Path, entries: list[dict[str, Any]], expected: list[str]
) -> None:
    chat_id = await import_chat(folder, tmp_path, entries)
    async with serve() as memory:
        assert await load_next_context(memory, chat_id) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("no json", '{"type":"user"}\n{"cut', "{}\n" + "[" * 100_000),
        *(
            pytest.param(text, marks=pytest.mark.nightly)
            for text in ("", "[]", '{"a":1}', "[1, 2]", "[" * 100_000 + "\n")
        ),
    ],
)
async def test_a_file_that_is_no_log_is_rejected(folder: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(text)
    assert str(path) in await tool(folder, "import", str(path), exit_code=1)
    assert logs_in(folder) == []


async def test_a_broken_file_does_not_stop_the_import_of_the_others(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "project"
    source.mkdir()
    of = {"sessionId": new_id()}
    files = {
        "agent-1": [make_user_entry("1", None, "Look.", isSidechain=True, **of)],
        "agent-2": [make_user_entry("1", None, "Look.", isSidechain=True, **of)],
        "broken": [],
        "main": [make_user_entry("1", None, "Go.", **of), make_assistant_entry("2", "1", "Done.", **of)],
    }
    for name, entries in files.items():
        (source / f"{name}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) or "{")
    printed = await tool(folder, "import", str(source), exit_code=1)
    assert printed.count("broken.jsonl") == 1
    assert len(logs_in(folder)) == 3
    again = await tool(folder, "import", str(source), exit_code=1)
    assert (again.count("exists already"), len(logs_in(folder))) == (3, 3)


async def test_odd_values_in_a_foreign_log_do_not_prevent_its_import(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    entries: list[Any] = [
        {"uuid": "a", "type": "user", "message": {"role": "user", "content": "half \ud83d of a sign"}},
        {"uuid": "b", "parentUuid": "a", "type": "assistant", "message": {"content": "half \ud83d of another"}},
        {"uuid": "c", "parentUuid": ["b"], "logicalParentUuid": {"is": "odd"}, "type": "user", "content": "next"},
        {"uuid": "d", "parentUuid": "b", "type": "user", "content": "at last"},
    ]
    path.write_text("\n".join(map(json.dumps, entries)))
    chat_id = (await tool(folder, "import", str(path))).strip()
    assert [name for name in logs_in(folder) if chat_id in name]


@pytest.mark.parametrize(
    "name",
    [
        "facts",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("schedules", "agent_versions", "keys", "agents")),
    ],
)
async def test_records_that_are_not_utf_8_are_rejected_with_the_file_name(
    folder: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(b'{"_type":"fact","_n":1,"uuid":"\xff","scheduleId":"\xff","tenant":"\xff","keyId":"\xff"}\n')
    assert str(path) in await tool(folder, "import", str(path), exit_code=1)
