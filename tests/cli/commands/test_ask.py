"""headrace ask in a process of its own, against a real facade with scripted peers."""

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

from headrace.errors import ChatBusy, InvalidRequest, Overloaded, QueueFull
from headrace.v1 import agent_pb2, common_pb2
from tests.support.command_line import CANCELLED, GIVEN_UP_S, run, start
from tests.support.facade.fronts import Timing
from tests.support.facade.scripted import CHAT, RUN, Script, Step, answering, complete, delta, opening, suite, text
from tests.support.programs import run_to_end


async def test_ask_prints_the_answer_unchanged_with_exit_code_0(tmp_path: Path) -> None:
    pieces = ["\n\n", " ", "水", "\r\n", "end"]
    async with suite(tmp_path, Script(query=answering(*pieces))) as facade:
        assert await run("ask", "--agent", "helper", "hi", url=facade.url) == (0, b"\n\n \xe6\xb0\xb4\r\nend\n", b"")
    assert (facade.script.requests[0].message, facade.script.requests[0].agent_key) == ("hi", "helper")


async def test_ask_uploads_files_and_refers_to_them(tmp_path: Path) -> None:
    picture, notes = tmp_path / "a.png", tmp_path / "notes.txt"
    picture.write_bytes(b"\x89PNG")
    notes.write_text("hello")
    async with suite(tmp_path, Script(query=answering("seen"))) as facade:
        code, out, _ = await run("ask", "--file", str(picture), "--file", str(notes), "What is it?", url=facade.url)
        missing, _, complaint = await run("ask", "--file", str(tmp_path / "gone"), "hi", url=facade.url)
        uploaded, (query,) = facade.tools.uploaded, facade.script.requests
    assert (code, out) == (0, b"seen\n")
    assert [(start.name, data) for start, data in uploaded] == [("a.png", b"\x89PNG"), ("notes.txt", b"hello")]
    assert {start.chat_id for start, _ in uploaded} == {query.chat_id} != {""}
    assert [reference.name for reference in query.references] == ["a.png", "notes.txt"]
    assert (missing, b"does not exist" in complaint) == (2, True)


async def test_a_file_the_server_refuses_gives_exit_code_1_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x")
    async with suite(tmp_path, Script(query=answering("seen"))) as facade:
        facade.tools.refused = InvalidRequest.of("file", "is larger than 10 MiB")
        code, _, complaint = await run("ask", "--file", str(file), "hi", url=facade.url)
        assert not facade.script.requests
    assert (code, b"is larger than 10 MiB" in complaint) == (1, True)


@pytest.mark.parametrize("given", ["caf\ufffd?", "hi"])
async def test_a_question_in_another_encoding_is_decoded_as_far_as_possible(tmp_path: Path, given: str) -> None:
    """In a legacy code page, or with the byte order mark that some shells add to piped text."""
    data = b"caf\xe9?" if "\ufffd" in given else b"\xef\xbb\xbfhi"
    async with suite(tmp_path, Script(query=answering("seen"))) as facade:
        code, _, _ = await run("ask", "-", url=facade.url, given=data, PYTHONIOENCODING="utf-8:strict")
        as_argument, _, _ = await run("ask", data.decode(errors="surrogateescape"), url=facade.url)
        piped, argued = facade.script.requests
    assert (code, piped.message) == (as_argument, argued.message) == (0, given)


async def test_ask_prints_each_delta_at_once(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with suite(tmp_path, Script(query=[*answering("first")[:-2], go_on, complete(6)])) as facade:
        process = await start("ask", "-", url=facade.url)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"from standard input")
        process.stdin.write_eof()
        assert await process.stdout.readexactly(5) == b"first"
        go_on.set()
        assert await process.wait() == 0
    assert facade.script.requests[0].message == "from standard input"


FAILED = agent_pb2.RunError(run_id=RUN, error=common_pb2.Failure(code="OVERLOADED", message="try later"))


@pytest.mark.parametrize(
    ("steps", "out", "complaint"),
    [
        ([*opening(), delta(4, run_error=FAILED)], b"[failed] OVERLOADED: try later\n", b""),
        ([ChatBusy("the chat has a run")], b"", b"Error: the chat has a run\n"),
        ([0.05, QueueFull("no place for the run")], b"", b"Error: no place for the run\n"),
    ],
    ids=["a failed run", "a refusal", "a refusal behind the headers"],
)
async def test_a_failed_or_refused_query_gives_exit_code_1(
    tmp_path: Path, steps: list[Step], out: bytes, complaint: bytes
) -> None:
    async with suite(tmp_path, Script(query=steps), timing=Timing(heartbeat_s=0.01)) as facade:
        assert await run("ask", "hi", url=facade.url) == (1, out, complaint)


async def test_a_waiting_run_gives_exit_code_4_and_shows_the_call(tmp_path: Path) -> None:
    start = agent_pb2.ToolStart(tool_id="t", run_id=RUN, tool_name="order")
    gate = agent_pb2.GateOpen(gate_id="approval_1", kind="approval", tool_id="t", tool_name="order", reason="it buys")
    steps = [
        delta(4, tool_start=start),
        delta(5, tool_end=agent_pb2.ToolEnd(tool_id="t", tool_params='{"n": "3\u202e"}')),
    ]
    script = Script(query=[*opening(), *steps, delta(6, gate_open=gate), asyncio.Event()])
    async with suite(tmp_path, script) as facade:
        code, _, complaint = await run("ask", "hi", url=facade.url)
    assert code == 4
    assert complaint.decode().splitlines()[:2] == [
        'approval of order({"n": "3\\u202e"}): it buys',
        f"  answer it with: headrace gates answer {RUN} approval_1 approve (or reject)",
    ]


async def test_a_server_that_does_not_speak_http_1_1_is_reported_in_one_line() -> None:
    """The gRPC port is the likeliest mistake: it does not speak HTTP/1.1."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00*\x04\x00\x00\x00\x00\x00\x00\x01")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, _, complaint = await run("ask", "hi", url=url)
    assert (code, complaint.decode()) == (
        3,
        f"Error: no Headrace answers at {url} (it does not speak HTTP/1.1: is that the gRPC port?); "
        "start one with `headrace up`, or set --url\n",
    )


async def test_a_missing_server_gives_exit_code_3_and_wrong_usage_2() -> None:
    code, _, complaint = await run("ask", "--url", "http://127.0.0.1:1", "hi")
    assert code == 3
    assert b"no Headrace answers at http://127.0.0.1:1 (Connection refused);" in complaint
    assert (await run("ask"))[0] == 2


@pytest.mark.parametrize("cut", [[], [Overloaded("gone")]], ids=["ends", "breaks"])
async def test_a_stream_that_is_cut_continues_where_it_stopped(tmp_path: Path, cut: list[Exception]) -> None:
    again = delta(4, content_start=agent_pb2.ContentStart(content_id=f"{RUN}_c_1", run_id=RUN))
    script = Script(
        query=[*answering("Hel")[:-2], *cut],
        attaches=[
            [Overloaded("starting")],
            [Overloaded("starting")],
            [again, text(6, "Hello")],
            [text(7, " wor"), text(8, "ld"), complete(9)],
        ],
    )
    async with suite(tmp_path, script) as facade:
        code, out, _ = await run("ask", "hi", url=facade.url)
    lines = [line for line in out.splitlines() if not line.startswith(b"[notice]")]
    assert (code, b"".join(lines)) == (0, b"Hello world")
    assert out.count(b"starting; attaching again") == 1
    assert [request.last_seq for request in script.requests[1:]] == [5, 5, 5, 6]


async def test_a_stream_cut_before_run_start_is_requested_again_with_the_same_id(tmp_path: Path) -> None:
    script = Script(query=opening()[:1], attaches=[[complete(4)]])
    async with suite(tmp_path, script) as facade:
        process = await start("ask", "hi", url=facade.url)
        await script.closed.wait()
        script.query = answering("done")
        assert process.stdout is not None
        assert (await process.stdout.read()).endswith(b"done\n")
        assert await process.wait() == 0
    request_ids = [(request.request_id, request.chat_id) for request in script.requests]
    assert request_ids == [(request_ids[0][0], ""), (request_ids[0][0], CHAT)]


async def test_ctrl_c_cancels_the_run_and_shows_its_end(tmp_path: Path) -> None:
    script = Script()
    script.query = [*answering("half")[:-2], script.cancelled, CANCELLED]
    async with suite(tmp_path, script) as facade:
        process = await start("ask", "hi", url=facade.url)
        assert process.stdout is not None
        assert await process.stdout.readexactly(4) == b"half"
        process.send_signal(signal.SIGINT)
        assert (await process.stdout.read()).endswith(b"[cancelled]\n")
        assert await process.wait() == 130
    assert script.requests[-1] == agent_pb2.CancelRequest(run_id=RUN)


async def test_a_second_ctrl_c_exits_at_once(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=[*answering("half")[:-2], asyncio.Event()])) as facade:
        process = await start("ask", "hi", url=facade.url)
        assert process.stdout is not None
        await process.stdout.readexactly(4)
        process.send_signal(signal.SIGINT)
        await process.stdout.readuntil(b"[notice] cancelling; Ctrl-C again leaves at once\n")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


async def test_agents_chats_and_health_are_listed(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        facade.memory.chat.chat_id = CHAT
        facade.memory.chat.events.extend(
            step for step in answering("it works") if isinstance(step, agent_pb2.AgentDelta)
        )
        _, row = (await run("agents", "list", url=facade.url))[1].decode().splitlines()
        assert row.split() == ["helper", "REACT", "-", "weather", "-"]
        _, refused = (await run("agents", "problems", url=facade.url))[1].decode().splitlines()
        assert re.split("  +", refused) == ["clerk.json", "clerk", "last good version", "mode: is required"]
        listed = (await run("agents", "versions", "helper", url=facade.url))[1].decode().splitlines()
        assert (listed[0].split(), listed[1].split()[:2]) == (["version", "hash", "first", "run"], ["3", "ab" * 6])
        changed = b'agents.helper.name\n  + "Helper"\ntools.look\n  - 2\n  + 3\n'
        assert (await run("agents", "diff", "helper", "2", "3", url=facade.url))[1] == changed
        for text, printed in (
            ("{}", (1, b"mode: Field required\n")),
            ('"ok"', (0, b"warning: mode: Field required\n")),
        ):
            (tmp_path / "a.json").write_text(text)
            assert (await run("agents", "validate", str(tmp_path / "a.json"), url=facade.url))[:2] == printed
        code, out, _ = await run("chats", "list", url=facade.url)
        row = re.split("  +", out.decode().splitlines()[1])
        assert (code, row[0], row[-3:]) == (0, CHAT, ["水车 怎么 转", "-", "-"])
        assert await run("chats", "rename", CHAT, "The mill", url=facade.url) == (0, b"The mill\n", b"")
        _, hit = (await run("chats", "search", "mill", "wheel", url=facade.url))[1].decode().splitlines()
        assert re.split("  +", hit) == [CHAT, "水车 怎么 转", "mill wheel chats 0"]
        assert await run("chats", "show", CHAT, url=facade.url) == (0, b"> hi\nit works\n", b"")
        code, out, _ = await run("health", url=facade.url)
        assert (code, out.split()) == (0, b"service state orchestrator ready memory ready tools ready".split())


async def test_chat_continues_its_chat_and_survives_a_refusal(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("yes"))) as facade:
        code, out, complaint = await run("chat", url=facade.url, given=b"one\n/help\n\n/agents\ntwo\n")
    assert code == 0
    assert out.count(b"yes\n") == 2
    assert out.endswith(f"chat {CHAT}\n".encode())
    assert complaint == b""
    chat_ids = [request.chat_id for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]
    assert chat_ids == ["", CHAT]


@pytest.mark.parametrize(
    ("streams", "code", "complaint"),
    [
        ("<&-", 0, ""),
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        (">/dev/full", 1, "Error: [Errno 28] No space left on device\n"),
    ],
)
@pytest.mark.parametrize("command", ["agents list", "ask hi"])
async def test_a_closed_or_full_standard_stream_gives_no_traceback(
    tmp_path: Path, command: str, streams: str, code: int, complaint: str
) -> None:
    """As for a command run by a supervisor or a cron job."""
    async with suite(tmp_path, Script(query=answering("seen"))) as facade:
        script = f"exec {sys.executable} -m headrace.cli {command} --url {facade.url} {streams}"
        exit_code, _, complaints = await run_to_end("bash", "-c", script, timeout_s=GIVEN_UP_S)
    assert (exit_code, complaints.decode()) == (code, complaint)
