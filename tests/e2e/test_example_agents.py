"""Every agent of examples/ does its work in the suite that `make demo` starts: simulated model, simulated web."""

import asyncio
import io
import json
import re
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import pytest
from pypdf import PdfReader

from headrace.sse import SseReader
from tests.support.command_line import run
from tests.support.order import Event, check_order, texts
from tests.support.suite import Running

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLES = Path(__file__).parents[2] / "examples"

QUESTIONS = {
    "assistant": ("What is the weather in Paris today?", "mock_city_weather"),
    "researcher": ("Search for water mills", "web_search"),
    "trip_planner": ("Plan a day out: pack; see what the weather in Paris is", "mock_city_weather"),
    "research_team": ("Ask researcher to search for: water mills", "call_subagent"),
    "analyst": ("Compute `sum(range(10))`", "python"),
    "shell": ("Please run `echo hello`", "_bash_"),
    "writer": ("A line about mills", None),
    "editor": ("How many wheels has a mill?", None),
    "booker": ("Book a table for two", "confirm_dialog"),
    "publisher": ("Publish that the mill is open", "publish_note"),
    "companion": ("Remember that my boat is called Ada.", "remember"),
    "archivist": ("Search for water mills", "web_search"),
}
"""By agent: a question for it, and the tool that it calls next to those of a plan."""


async def ask_agreeing(demo: Running, agent: str, message: str) -> list[Event]:
    """Run a query to its end, approving everything; return its events."""
    body = {"message": message, "agentKey": agent}
    events: list[Event] = []
    reader = SseReader()
    async with (
        asyncio.timeout(300),
        aiohttp.ClientSession(demo.url) as http,
        http.post("/api/query", json=body) as response,
    ):
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                if frame.data != b"[DONE]":
                    events.append(json.loads(frame.data))
                    await agree(http, events)
    check_order(events)
    assert events[-1]["type"] == "run.complete", events[-1]
    return events


async def agree(http: aiohttp.ClientSession, events: list[Event]) -> None:
    """Approve or confirm what the last event asks a person."""
    event = events[-1]
    dialogs = {seen_event["toolId"] for seen_event in events if seen_event.get("toolType") == "frontend"}
    if event["type"] == "approval.ask":
        answer = {"approvalId": event["approvalId"], "payload": {"decision": "approve"}}
    elif event["type"] == "tool.end" and event["toolId"] in dialogs:
        answer = {"toolId": event["toolId"], "payload": {"choice": "yes"}}
    else:
        return
    run_id = next(seen_event["runId"] for seen_event in events if seen_event["type"] == "run.start")
    async with http.post("/api/submit", json={"runId": run_id} | answer) as response:
        assert (await response.json())["data"]["status"] == "accepted"


async def test_the_editor_checks_its_answer_and_summarises_its_reasoning(demo: Running) -> None:
    events = await ask_agreeing(demo, "editor", "How many wheels has a mill?")
    assert "".join(texts(events, "content")).endswith("I have read this twice.")
    assert "".join(texts(events, "reasoning")) == "It was looked for what the question needs, and answered shortly."
    assert events[-1]["usage"]["modelCalls"] == 3


async def test_auto_picks_an_agent_by_its_description(demo: Running) -> None:
    events = await ask_agreeing(demo, "auto", "Which publisher publishes notes that other people read?")
    assert next(event["agentKey"] for event in events if event["type"] == "run.start") == "publisher"


def read_notes(data_dir: Path) -> str:
    """Return the notes of the only chat."""
    [notes] = data_dir.rglob("outputs/notes.md")
    return notes.read_text()


async def test_one_up_command_asks_and_approves_in_the_terminal(tmp_path: Path) -> None:
    options = ("--simulate", "--simulate-port", "0", "--port", "0", "--grpc-port", "0")
    folders = ("--config-dir", str(EXAMPLES), "--data-dir", str(tmp_path))
    ask = ("--agent", "publisher", "--ask", "Publish that the mill is open")
    code, out, _ = await run("up", *options, *folders, *ask, given=b"y\n")
    assert code == 0
    assert b"? Allow publish_note?" in out
    assert b"added to outputs/notes.md" in out
    assert read_notes(tmp_path).startswith("## Publish that the mill is open")


async def test_every_example_agent_has_a_question() -> None:
    assert {path.stem for path in (EXAMPLES / "agents").glob("*.json")} <= set(QUESTIONS)


async def test_the_companion_recalls_a_fact_of_another_chat(demo: Running) -> None:
    await ask_agreeing(demo, "companion", "Remember that my sister's cat is called Tibert.")
    events = await ask_agreeing(demo, "companion", "What is the name of my sister's cat?")
    assert "".join(texts(events, "content")) == "I remember: My sister's cat is called Tibert."
    assert "tool.start" not in [event["type"] for event in events]


@pytest.mark.parametrize("agent", QUESTIONS)
async def test_an_example_agent_calls_its_tool_and_answers(demo: Running, agent: str) -> None:
    message, tool = QUESTIONS[agent]
    events = await ask_agreeing(demo, agent, message)
    named = [event["toolName"] for event in events if event["type"] == "tool.start" and "subagentId" not in event]
    called = [name for name in named if not name.startswith("_plan_")]
    assert called == ([tool] if tool else [])
    assert all(event["ok"] for event in events if event["type"] == "tool.result")
    assert texts(events, "content")[-1]


async def test_a_team_researches_the_parts_of_a_question_in_parallel(demo: Running) -> None:
    events = await ask_agreeing(demo, "research_team", "Ask researcher to search for: water mills; windmills; tides")
    kinds = [event["type"] for event in events]
    goals = [event["goal"] for event in events if event["type"] == "subagent.start"]
    assert goals == ["search for water mills", "search for windmills", "search for tides"]
    last_start = max(index for index, kind in enumerate(kinds) if kind == "subagent.start")
    assert last_start < kinds.index("subagent.end")
    searches = [event["subagentId"] for event in events if event.get("toolName") == "web_search"]
    assert len(set(searches)) == 3
    results = [event["result"] for event in events if event["type"] == "tool.result" and "subagentId" not in event]
    assert all('"ok":true' in result for result in results)


async def test_a_team_splits_a_question_reads_sources_and_compares(demo: Running) -> None:
    events = await ask_agreeing(demo, "research_team", "Compare water mills, windmills and tides.")
    tasks = [event["goal"] for event in events if event["type"] == "subagent.start"]
    assert tasks == [f"Read up on {part}" for part in ("water mills", "windmills", "tides")]
    tools = [event["toolName"] for event in events if event["type"] == "tool.start" and "subagentId" in event]
    assert sorted(tools) == ["fetch_web"] * 3 + ["web_search"] * 3
    answer = read_final_answer(events)
    for part in ("water mills", "windmills", "tides"):
        assert f" reports about {part}, the first of them from " in answer
        assert f"/pages/0/{part.replace(' ', '%20')}" in answer, "the source"
    assert re.search(r"^Compared: most reports are about ", answer, re.MULTILINE)


async def test_the_trip_planner_drafts_plans_and_uses_earlier_results(demo: Running) -> None:
    events = await ask_agreeing(demo, "trip_planner", "Plan a weekend in Rome")
    kinds = [event["type"] for event in events]
    assert kinds.index("reasoning.delta") < kinds.index("plan.create"), "a draft precedes the plan"
    (plan,) = (event["plan"] for event in events if event["type"] == "plan.create")
    assert [task["description"] for task in plan] == [
        "See what the weather in Rome is",
        "Search for sights in Rome",
        "Say what to pack for Rome",
    ]
    ends = {event["taskId"]: event["summary"] for event in events if event["type"] == "task.complete"}
    weather, sights, packing = (ends[task["taskId"]] for task in plan)
    condition = re.fullmatch(r"The weather in Rome on [\d-]+: ([a-z ]+), -?\d+ °C, .*", weather)
    assert condition is not None
    assert "](http://" in sights
    assert f"({condition[1]}," in packing, "a later task has seen an earlier result"
    answer = read_final_answer(events)
    assert all(result in answer for result in (weather, packing))


@pytest.mark.parametrize("agent", ["research_team", "trip_planner", "researcher", "assistant"])
async def test_no_answer_repeats_the_reminders_added_to_a_question(demo: Running, agent: str) -> None:
    for message in ("Compare water mills and windmills", "Hello"):
        shown = "".join(texts(await ask_agreeing(demo, agent, message), "content"))
        assert "system_reminder" not in shown
        assert "Left of the budget" not in shown


def read_final_answer(events: list[Event]) -> str:
    """Return the run's own content after its last call."""
    last = max(index for index, event in enumerate(events) if event["type"] == "tool.result")
    own = (event for event in events[last:] if event["type"] == "content.delta" and "subagentId" not in event)
    return "".join(event["delta"] for event in own)


async def test_a_deep_search_streams_sources_and_its_report_to_the_client(demo: Running) -> None:
    events = await ask_agreeing(demo, "researcher", "Research water mills")
    deltas = [event["delta"] for event in events if event["type"] == "tool.output" and event["stream"] == "text"]
    (result,) = (event["result"] for event in events if event["type"] == "tool.result")
    urls = [event["url"] for event in events if event["type"] == "source.snapshot"]
    assert len(urls) == 10
    assert len(deltas) > 20, "the report is streamed"
    assert result == "".join(deltas)
    assert events[-1]["usage"]["modelCalls"] == 5, "three calls of the tool and two of the agent"


@pytest.mark.skipif(find_spec("pandas") is None, reason="headrace[data] is not installed: charts are NOT tried")
async def test_an_analyst_draws_a_chart_and_reports_it(demo: Running) -> None:
    events = await ask_agreeing(demo, "analyst", "Make a chart and a PDF of rainfall: Paris 53, Rome 87.5 and Oslo 60")
    files = {event["name"].rpartition(".")[2]: event for event in events if event["type"] == "artifact.publish"}
    assert {*files} == {"png", "csv", "pdf"}
    async with asyncio.timeout(100), aiohttp.ClientSession(demo.url) as http:
        table = await (await http.get(files["csv"]["url"])).text()
        pdf = await (await http.get(files["pdf"]["url"])).read()
    assert table.split() == ["name,value", "Paris,53.0", "Rome,87.5", "Oslo,60.0"]
    (page,) = PdfReader(io.BytesIO(pdf)).pages
    assert "87.5" in page.extract_text()
    assert len(page.images) == 1


async def test_a_report_is_an_artifact_that_can_be_downloaded(demo: Running) -> None:
    events = await ask_agreeing(demo, "researcher", "Write a report about mills as PDF")
    (artifact,) = (event for event in events if event["type"] == "artifact.publish")
    assert artifact["mimeType"] == "application/pdf"
    async with asyncio.timeout(100), aiohttp.ClientSession(demo.url) as http, http.get(artifact["url"]) as response:
        data = await response.read()
    assert (response.status, len(data), data[:5]) == (200, artifact["sizeBytes"], b"%PDF-")
