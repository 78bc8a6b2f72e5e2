"""What the README shows works as it stands there: each example is cut out of it and run against its own suite."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import aiohttp
import pytest

from services.simulator.server import simulator
from tests.support.order import Event, check_order, texts
from tests.support.suite import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"`headrace ([^`]+)`", README)


async def test_make_up_is_what_the_readme_says() -> None:
    (line,) = re.findall(r"`make up` uses\s`\.venv/(\S+ up [^`]+)`", README)
    assert line.replace("bin/", "$(BIN)/") in (ROOT / "Makefile").read_text()


async def test_the_http_examples_answer_with_the_events_that_are_shown(demo: Running) -> None:
    (command,) = [text for _, text in BLOCKS if text.startswith("curl ")]
    (shown,) = [text for _, text in BLOCKS if text.startswith("id: ")]
    events = await query(demo, command)
    check_order(events)
    frames = [f"id: {event['seq']}\nevent: message\ndata: {write_json(event)}" for event in events]
    for frame in shown.strip().split("\n\n"):
        assert is_shown(frame, "\n\n".join(frames)), frame
    assert shown.count("content.delta") == 3
    assert shown.count("tool.start") == 1
    (attach,) = re.findall(r"GET (/api/attach\S+lastSeq=)37", README)
    path = attach.replace("…", events[-1]["runId"])
    async with aiohttp.ClientSession(demo.url) as http, http.get(f"{path}{events[-2]['seq']}") as response:
        missed = events_of(await response.text())
    assert [event["seq"] for event in missed] == [events[-1]["seq"]]
    answer = await query(demo, command.replace('"message"', '"stream": false, "message"'))
    assert answer[0]["data"]["content"].startswith("The weather in Paris on ")


async def test_the_python_example_prints_the_answer(demo: Running) -> None:
    (program,) = [text for language, text in BLOCKS if language == "python"]
    assert "127.0.0.1:7001" in program
    code, said = await run(sys.executable, "-c", program.replace("127.0.0.1:7001", demo.grpc))
    assert code == 0
    assert said.startswith("The weather in Paris on ")


async def test_the_demo_prints_what_the_readme_shows(demo: Running) -> None:
    (shown,) = [text for _, text in BLOCKS if text.startswith("[reasoning] ")]
    makefile = (ROOT / "Makefile").read_text()
    asked = dict(re.findall(r"^(AGENT|ASK) \?= (.+)$", makefile, re.MULTILINE))
    others = re.findall(r'AGENT=(\w+) ASK="([^"]+)"', README)
    for agent, question in [(asked["AGENT"], asked["ASK"]), *others]:
        command = ("-m", "headrace.cli", "ask", "--url", demo.url, "--agent", agent, " ".join(question.split()))
        code, said = await run(sys.executable, *command)
        assert code == 0
        if agent == asked["AGENT"]:
            assert is_shown(shown.strip(), said), said
    assert {agent for agent, _ in others} == {"trip_planner", "research_team"}


async def test_every_command_that_is_named_works(demo: Running) -> None:
    question = {"message": "hi", "stream": False}
    async with aiohttp.ClientSession(demo.url) as http, http.post("/api/query", json=question) as response:
        chat_id = (await response.json())["data"]["chatId"]
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        arguments = [chat_id if word == "ID" else word for word in shlex.split(command)]
        code, said = await run(sys.executable, "-m", "headrace.cli", *arguments, "--url", demo.url)
        assert (code, bool(said)) == (0, True), command


async def test_the_script_of_the_examples_plays_as_it_reads(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```json\n(.*?)^```$", (ROOT / "examples" / "README.md").read_text(), re.M | re.S)
    async with simulator(json.loads(script)) as sim, running(tmp_path / "c", tmp_path / "d", sim) as suite:
        events = await suite.ask("weather?", "react")
        assert [event["ok"] for event in events if event["type"] == "tool.result"] == [True]
        assert "".join(texts(events, "content")) == "It snows."
        busy = await suite.ask("busy")
        assert busy[-1]["error"]["code"] == "RATE_LIMITED"
        cut = await suite.ask("anything else")
        assert texts(cut, "content") == ["Hel"]
        assert cut[-1]["type"] == "run.error"


async def query(demo: Running, command: str) -> list[Event]:
    """What the curl command line gets: the events of a stream, or its one JSON answer. curl itself may be missing."""
    _, *words = shlex.split(command.replace("\\\n", ""))
    url, headers, body = "", dict[str, str](), ""
    while words:
        match words.pop(0):
            case "-N":
                pass
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case word:
                url = word
    assert url.startswith("http://127.0.0.1:8080/")
    url = url.replace("http://127.0.0.1:8080", demo.url)
    async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as response:
        assert response.status == 200
        text = await response.text()
        return events_of(text) if response.content_type == "text/event-stream" else [json.loads(text)]


def write_json(event: Event) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def is_shown(shown: str, said: str) -> bool:
    """Whether all of `shown` was said; … and a time stand for anything within a line, ids for any other."""
    shown = re.sub(r'"timestamp":\d+', '"timestamp":…', shown)
    return re.search(".*".join(map(re.escape, re.split(r"\w{4}…|…", shown))), said) is not None


def events_of(text: str) -> list[Event]:
    *events, done = re.findall(r"^data: (.+)$", text, re.MULTILINE)
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


async def run(*command: str) -> tuple[int | None, str]:
    """The exit code, and what was printed; errors are let through. Standard input is empty."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(200):
        said, _ = await process.communicate()
    return process.returncode, said.decode()
