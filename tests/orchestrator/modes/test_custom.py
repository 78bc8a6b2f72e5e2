"""Custom modes of an operator: what their code may do, and that every step is durable."""

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.postgresql import FAST, running
from headrace.errors import ProviderAuthentication
from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.agents.mode_files import ModeFiles
from services.runtime.files.refused_files import REFUSED_FILES, collecting_refusals
from tests.support.orchestrator import CHAT, MODEL, Serve, Suite, as_json, ask, cancels, only, read, submit
from tests.support.orchestrator.crashes import Crashes, check_resumed, restart, run_killed, run_whole, summarise_outcome
from tests.support.orchestrator.events import read_until, run_of
from tests.support.orchestrator.own_agents import wait_for_owner
from tests.support.orchestrator.plans import last_text, system, text_of
from tests.support.orchestrator.recorded_runs import World
from tests.support.orchestrator.steps import Step, ToolStep, call_tool, content, finish
from tests.support.orchestrator.suite import write_agent
from tests.support.order import TERMINAL, Event, fold
from tests.support.postgresql import needs_postgres
from tests.support.tiers import Take, at_places, take_some
from tests.support.waiting import wait_until

EVERYTHING = """
async def run(mode):
    started = await mode.now_ms()
    kind = await mode.ask("Which kind?", tools="none")
    seen = await mode.call_tool("look", at=1)
    tasks = await mode.plan(["part a", "part b"])

    async def work(task):
        async with mode.task(task, stage="reader") as reader:
            done = await reader.call_tool("act", n=task.description)
            assert done.ok, done.text
            return await reader.ask("Read it.")

    parts = await mode.run_together([work(task) for task in tasks])
    helped = await mode.call_agent("oneshot", "help with " + kind)
    count = 1 + await mode.load_state("count", 0)
    await mode.save_state("count", count)
    await mode.publish(f"{kind}, {seen.ok}, {parts}, {helped.text}, {mode.new_id()}")
    chance = mode.random.random()
    assert await mode.once("chance", lambda: chance) == chance
    assert await mode.now_ms() >= started
    return None if await mode.answer(f"Now answer, for the {count}. time.") else ""
"""

SECTION = {
    "mode": "own",
    "systemPrompt": "You work.",
    "params": {"limit": 3},
    "stages": {"reader": {"systemPrompt": "You read.", "toolConfig": {"backends": ["act"]}}},
}

AGENT: dict[str, Any] = {
    "mode": "CUSTOM",
    "modelConfig": MODEL,
    "toolConfig": {"backends": ["look", "slow"], "frontends": ["ask_human"]},
    "subagents": ["oneshot"],
    "custom": SECTION,
}


def write_mode(folder: Path, code: str, **changes: Any) -> None:
    """Write the mode `own` and the agent `own` that has it."""
    (folder / "modes").mkdir(exist_ok=True)
    (folder / "modes" / "own.py").write_text(code)
    write_agent(folder, "own", AGENT | changes)


def speak(request: llm_pb2.ChatRequest) -> list[Step]:
    """A model that answers with its stage and the last message, or with fixed text for the reader stage."""
    if "You read." in system(request):
        return content("read ", "it") + finish()
    return content(f"{request.stage}: ", last_text(request)) + finish()


def read_answer_text(events: list[Event]) -> str:
    """Return the text of the run's answer."""
    answer = {event["contentId"] for event in events if event["type"] == "content.start" and event.get("isAnswer")}
    return "".join(e["delta"] for e in events if e["type"] == "content.delta" and e["contentId"] in answer)


def read_error(events: list[Event]) -> dict[str, Any]:
    assert events[-1]["type"] == "run.error", events[-1]
    return events[-1]["error"]


async def test_a_mode_uses_the_model_tools_tasks_agents_and_state(serve: Serve, tmp_path: Path) -> None:
    write_mode(tmp_path, EVERYTHING)
    async with serve() as suite:
        world = World(suite, speak)
        events = await suite.ask(agent="own")
        assert events[-1]["type"] == "run.complete", events[-1]
        assert read_answer_text(events) == "custom: Now answer, for the 1. time."
        assert sorted(event["description"] for event in events if event["type"] == "task.start") == ["part a", "part b"]
        assert [event["summary"] for event in events if event["type"] == "task.complete"] == ["read it"] * 2
        assert [event["ok"] for event in events if event["type"] == "subagent.end"] == [True]
        published = [event["delta"] for event in events if event["type"] == "content.delta"]
        assert any("['read it', 'read it'], oneshot: help with work: Which kind?" in text for text in published)
        assert sum(world.runs.values()) == 3
        readers = [request for request in suite.llm.requests if "You read." in system(request)]
        assert [[tool.name for tool in request.tools] for request in readers] == [["act", "call_subagent"]] * 2
        second_run = await suite.ask(agent="own")
        assert read_answer_text(second_run) == "custom: Now answer, for the 2. time."
        messages = [text_of(message) for message in suite.llm.requests[-1].messages]
        assert not any('"step"' in message for message in messages)
        # The steps of the previous run are hidden, like those of a plan.
        assert "Which kind?" not in [text_of(message) for message in suite.llm.requests[-5].messages][:2]


@pytest.mark.parametrize(
    "first", ['await mode.finish("So.")', 'await mode.call_tool("look", at=1); await mode.finish("So.")']
)
async def test_a_modes_first_output_follows_the_runs_first_events(serve: Serve, tmp_path: Path, first: str) -> None:
    write_mode(tmp_path, f"async def run(mode):\n    {first}\n")
    async with serve() as suite:
        World(suite, speak)
        events = await suite.ask(agent="own")
    assert [event["type"] for event in events[:3]] == ["request.query", "chat.start", "run.start"]
    assert read_answer_text(events) == "So."


@at_places
async def test_a_mode_killed_at_each_line_continues_to_the_same_end(serve: Serve, tmp_path: Path, take: Take) -> None:
    write_mode(tmp_path, EVERYTHING)
    async with serve() as suite:
        await kill_at_lines(suite, take)


@pytest.mark.nightly
@needs_postgres
async def test_a_mode_over_postgresql_killed_at_some_lines_continues_to_the_same_end(
    serve: Serve, tmp_path: Path
) -> None:
    """A mode's recording is the same in PostgreSQL as in files."""
    write_mode(tmp_path, EVERYTHING)
    with running(*FAST) as server:
        async with serve(database_url=server.url()) as suite:
            await kill_at_lines(suite, take_some)


async def kill_at_lines(suite: Suite, take: Take) -> None:
    await suite.stop()
    world, crashes = World(suite, speak), Crashes(suite)
    undisturbed, appends = await run_whole(suite, crashes, "own")
    assert undisturbed[-1]["type"] == "run.complete"
    for append in take(range(1, appends), "own"):
        events_before = await run_killed(suite, crashes, "own", append=append)
        assert events_before[-1]["type"] not in TERMINAL
        whole = await check_resumed(suite, world, events_before, seqs_max=2)
        assert summarise_outcome(whole) == summarise_outcome(undisturbed), append
        assert read_answer_text(whole).endswith("Now answer, for the 1. time.")


TOGETHER = """
async def run(mode):
    async def work(task):
        async with mode.task(task, stage="reader") as reader:
            return await reader.ask(task.description)

    await mode.run_together([work(task) for task in await mode.plan(["quick", "slow"])])
    return "Done."
"""


async def test_a_replay_completes_each_task_in_the_plan_whatever_their_order(serve: Serve, tmp_path: Path) -> None:
    messages: list[str] = []

    def speak_slowly(request: llm_pb2.ChatRequest) -> list[Step]:
        messages.append(last_text(request))
        return [0.05 if messages[-1] == "slow" else 0.0, *speak(request)]

    write_mode(tmp_path, TOGETHER)
    async with serve() as suite:
        await suite.stop()
        world, crashes = World(suite, speak_slowly), Crashes(suite)
        undisturbed, _ = await run_whole(suite, crashes, "own")
        assert summarise_outcome(undisturbed)["plan"] == {"quick": "completed", "slow": "completed"}
        counts_by_kill: list[tuple[int, int]] = []
        for append in (8, 9, 10):
            messages.clear()
            events_before = await run_killed(suite, crashes, "own", append=append)
            whole = await check_resumed(suite, world, events_before, seqs_max=2)
            assert summarise_outcome(whole) == summarise_outcome(undisturbed), append
            counts_by_kill.append((messages.count("quick"), messages.count("slow")))
        # The chat's next run asks both once more.
        assert (2, 3) in counts_by_kill


DONE: list[ToolStep] = [tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="{}"))]

ASK, LOOK = 'await mode.ask("a", tools="none")', 'await mode.call_tool("look", at=1)'
X = 'await mode.once("x", lambda: 1)'

CHANGES = {
    "another message": (
        f"{ASK}; {X}; {LOOK}",
        f'await mode.ask("other", tools="none"); {LOOK}',
        "step 1 of the run: recorded is another message, of 1 characters, the mode's code asks for a message of 5",
    ),
    "another tool": (
        f"{LOOK}; {ASK}",
        f'await mode.call_tool("slow", at=1); {ASK}',
        "step 1 of the run: recorded is a call of look, the mode's code asks for a call of slow",
    ),
    "other arguments": (
        f"{LOOK}; {ASK}",
        f'await mode.call_tool("look", at=2); {ASK}',
        "step 1 of the run: recorded is a call of look with other arguments, the mode's code asks for a call of look",
    ),
    "a call in the place of a question": (
        f"{ASK}; {LOOK}",
        LOOK,
        "step 1 of the run: recorded is a message to the model, the mode's code asks for a call of look",
    ),
    "another value": (
        f"{X}; {LOOK}",
        f'await mode.once("y", lambda: 1); {LOOK}',
        "step 1 of the run: recorded is the value 'x', the mode's code asks for the value 'y'",
    ),
    "a value less": (
        f"{ASK}; {X}; {LOOK}",
        f"{ASK}; {LOOK}",
        "step 2 of the run: recorded is the value 'x', the mode's code asks for a call of look",
    ),
    "no value any more": (
        f"{X}; {ASK}",
        ASK,
        "step 1 of the run: recorded is the value 'x', the mode's code asks for a model's answer",
    ),
    "an end too early": (
        f"{ASK}; {LOOK}",
        "return 'done'",
        "step 1 of the run: recorded is a message to the model, the mode's code asks for a text of the mode",
    ),
    "no task any more": (
        """
    for task in await mode.plan(["t"]):
        async with mode.task(task) as inner:
            await inner.once("x", lambda: 1)
            await inner.call_tool("slow")""",
        """
    await mode.plan(["t"])
    await mode.ask("a", tools="none")""",
        "step 2 of the run: recorded is the begin of task-",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_code_that_no_longer_matches_the_recording_fails_naming_the_difference(
    serve: Serve, tmp_path: Path, case: str
) -> None:
    before, after, difference = CHANGES[case]
    write_mode(
        tmp_path, f"async def run(mode):\n    {before.strip()}\n    await mode.call_tool('slow')\n    return 'end'\n"
    )
    async with serve() as suite:
        await suite.stop()
        suite.llm.reply = speak
        crashes = Crashes(suite)
        events_before = await kill_during_slow(suite, crashes)
        requests_before = len(suite.llm.requests)
        write_mode(tmp_path, f"async def run(mode):\n    {after.strip()}\n    return 'end'\n")
        async with restart(suite) as client:
            failure = read_error(await read(client, run_of(events_before)))
    assert failure["code"] == "MODE_CHANGED"
    assert difference in failure["message"]
    assert len(suite.llm.requests) == requests_before, "no model was asked after the difference"


async def kill_during_slow(suite: Suite, crashes: Crashes) -> list[Event]:
    """Run until the tool `slow` is running, and kill the process; return the events so far."""
    suite.tools.tools[1].effect = "read"  # The next owner repeats the call without asking.
    events: list[Event] = []
    async with restart(suite) as client, client.ask("hello", agent_key="own", chat_id=str(uuid.uuid4())) as deltas:
        while not events or events[-1].get("toolName") != "slow":
            events += await read_until(deltas, "tool.start")
        await wait_until(lambda: suite.tools.open)
        crashes.kill(run_of(events))
    return events


COMPATIBLE = """
async def run(mode):
    await mode.ask("a", tools="none")
    await mode.call_tool("slow")
    return {end}
"""


async def test_a_run_resumes_with_the_code_it_started_with_or_with_compatible_code(
    serve: Serve, tmp_path: Path
) -> None:
    write_mode(tmp_path, COMPATIBLE.format(end="'before'"))
    async with serve() as suite:
        await suite.stop()
        suite.llm.reply = speak
        crashes = Crashes(suite)
        files = ModeFiles(tmp_path / "modes")
        events_before = await kill_during_slow(suite, crashes)
        files.reload()
        first_digest = json.loads(suite.memory.versions[-1].definition)["modes"]["own"]
        write_mode(tmp_path, COMPATIBLE.format(end="'later'"))
        files.reload()
        first_code, newest_code = files.find("own", first_digest), files.find("own", "of another process")
        assert first_code is not None
        assert newest_code is not None
        assert (first_code.digest, newest_code.digest) == (first_digest, files.digests["own"])
        suite.tools.plays["slow"] = [DONE]
        async with restart(suite) as client:  # Another process, which does not have the earlier code.
            whole = [*events_before, *await read(client, run_of(events_before))]
    assert read_answer_text(whole) == "later"


async def test_a_refused_mode_file_leaves_the_last_good_one_in_force(tmp_path: Path) -> None:
    files = ModeFiles(tmp_path)
    path = tmp_path / "own.py"
    problems = {
        "async def run(mode):\n    return (": "line 2: '(' was never closed",
        "x = 1\ny = x / 0\n": "line 2: ZeroDivisionError: division by zero",
        "raise SystemExit(3)": "line 1: SystemExit: 3",
        "def run(mode):\n    return 1": "line 1: 'run' must be an async function",
        "\nasync def run():\n    return 1": "line 2: 'run' must take one argument, the mode's run",
        "x = 1": "line 1: has no function 'run'; a mode is `async def run(mode)`",
    }
    for wrong, problem in problems.items():
        path.write_text("async def run(mode):\n    return 'good'")
        files.reload()
        path.write_text(wrong)
        with collecting_refusals() as refused:
            files.reload()
        assert [(refusal.file, refusal.problem) for refusal in refused] == [("own.py", problem)]
        assert count_refused() == 1
        code = files.find("own")
        assert code is not None
        assert await code.run(None) == "good"
    path.unlink()
    files.reload()
    assert (files.find("own"), files.names) == (None, [])
    assert count_refused() == 0


def count_refused() -> float:
    samples = (sample for metric in REFUSED_FILES.collect() for sample in metric.samples)
    return next(sample.value for sample in samples if sample.labels["kind"] == "modes")


FAILING = """
async def run(mode):
    await mode.ask("a", tools="none")
    secret = {}
    return secret["of another tenant"]
"""


@pytest.mark.parametrize("scopes", ["ask", "ask,operate"])
async def test_an_exception_ends_the_run_and_only_operators_see_file_and_line(
    serve: Serve, tmp_path: Path, scopes: str
) -> None:
    write_mode(tmp_path, FAILING)
    async with serve(keys={"key": f"acme/ann staff {scopes}"}) as suite:
        suite.llm.reply = speak
        failure = read_error(await suite.ask(agent="own"))
    assert failure["code"] == "MODE_FAILED"
    where = {"file": "own.py", "line": "5"} if "operate" in scopes else {}
    assert failure["details"] == {"mode": "own"} | where
    assert failure["message"].startswith("the mode 'own' ended with KeyError")
    assert ("own.py, line 5" in failure["message"]) == bool(where)
    assert "another tenant" not in json.dumps(failure)


LIMITS = """
import asyncio


async def run(mode):
    if mode.message == "two at a time in one scope":
        await asyncio.gather(mode.ask("a"), mode.ask("b"))
    if mode.message == "steps":
        while True:
            await mode.once("x", int)
    if mode.message == "steps, and no exception is let through":
        while True:
            try:
                await mode.once("x", int)
            except Exception:
                if mode.new_id() and mode.random.random() < 0.2:
                    raise
    if mode.message == "model calls":
        while True:
            await mode.ask("more", tools="none")
    if mode.message == "time":
        await asyncio.sleep(3600)
    if mode.message == "no JSON":
        await mode.call_tool("look", at={1})
    return " " if mode.message == "an empty answer" else None
"""

ENDS = {
    "two at a time in one scope": "MODE_FAILED",
    "steps": "BUDGET_EXCEEDED",
    "steps, and no exception is let through": "BUDGET_EXCEEDED",
    "model calls": "BUDGET_EXCEEDED",
    "time": "BUDGET_EXCEEDED",
    "no JSON": "MODE_FAILED",
    "an empty answer": "NO_ANSWER",
    "no answer": "NO_ANSWER",
}


async def test_a_mode_that_breaks_a_limit_ends_its_run_with_the_reason(serve: Serve, tmp_path: Path) -> None:
    limits = {"maxModelCalls": 3, "timeoutMs": 3000}
    write_mode(tmp_path, LIMITS, custom=SECTION | {"maxSteps": 20}, budget=limits)
    async with serve() as suite:
        suite.llm.reply = speak
        ends: dict[str, str] = {}
        for message in ENDS:
            ends[message] = read_error(await suite.ask(message, agent="own"))["code"]
        assert ends == ENDS
        (suite.agents / "own.json").write_text(json.dumps(AGENT | {"key": "other", "custom": {"mode": "gone"}}))
        await wait_for_owner(suite.client, "other", "operator")
        missing_mode_error = read_error(await suite.ask(agent="other"))
    assert missing_mode_error["code"] == "MODE_UNAVAILABLE"
    assert missing_mode_error["message"] == "the mode 'gone' has no valid file; modes: own"


async def test_a_failed_step_fails_again_in_a_replay(serve: Serve, tmp_path: Path) -> None:
    code = """
from headrace.errors import HeadraceError

async def run(mode):
    try:
        await mode.ask("fails", tools="none")
    except HeadraceError as error:
        await mode.publish(error.reason)
    said = await mode.ask("b", tools="none")
    await mode.call_tool("slow")
    return said
"""
    write_mode(tmp_path, code)
    async with serve() as suite:
        await suite.stop()

        broken = [*content("half"), ProviderAuthentication("no key")]
        suite.llm.reply = lambda request: broken if last_text(request) == "fails" else speak(request)
        crashes = Crashes(suite)
        events_before = await kill_during_slow(suite, crashes)
        requests_before = len(suite.llm.requests)
        suite.tools.plays["slow"] = [DONE]
        async with restart(suite) as client:
            whole = [*events_before, *await read(client, run_of(events_before))]
    assert whole[-1]["type"] == "run.complete", whole[-1]
    assert read_answer_text(whole) == "work: b"
    assert len(suite.llm.requests) == requests_before
    assert "half" not in json.dumps(fold(whole)["blocks"])


ASKING = """
async def run(mode):
    answer = await mode.ask_person("Which colour?", choices=["red", "blue"])
    done = await mode.call_tool("act", n=1)
    return f"{answer.text} {done.ok}"
"""


async def test_a_modes_wait_for_people_survives_a_takeover_and_can_be_cancelled(serve: Serve, tmp_path: Path) -> None:
    write_mode(tmp_path, ASKING, toolConfig={"backends": ["act"], "frontends": ["ask_human"]})
    async with serve() as suite:
        await suite.stop()
        world, crashes = World(suite, speak), Crashes(suite)
        suite.tools.tools[2].approval = "ask"
        async with restart(suite) as client, client.ask("hello", agent_key="own", chat_id=CHAT) as deltas:
            events_before = await read_until(deltas, "gate.open")
            crashes.kill(run_of(events_before))
        run_id = run_of(events_before)
        async with restart(suite) as client, client.attach(run_id) as deltas:
            await submit(suite, run_id, events_before[-1]["gateId"], {"answer": "blue"})
            events = await read_until(deltas, "approval.ask")
            assert not world.runs
            await submit(suite, run_id, events[-1]["approvalId"], {"decision": "approve"})
            events += [as_json(delta) async for delta in deltas]
            assert events[-1]["type"] == "run.complete", events[-1]
            assert "blue" in read_answer_text(events)
            assert read_answer_text(events).endswith("True")
            assert [*world.runs.values()] == [1]
            events = await ask(
                suite, ("gate.open", cancels(replace(suite, client=client))), agent_key="own", chat_id=CHAT
            )
            assert events[-1]["type"] == "run.cancel"


async def test_an_exception_within_a_task_ends_the_task_as_failed(serve: Serve, tmp_path: Path) -> None:
    code = """
async def run(mode):
    [task] = await mode.plan(["part a"])
    try:
        async with mode.task(task) as work:
            raise KeyError(await work.ask("Which?", tools="none"))
    except KeyError:
        return "It goes on."
"""
    write_mode(tmp_path, code)
    async with serve() as suite:
        World(suite, speak)
        events = await suite.ask(agent="own")
    failed = only(events, "task.fail")
    assert failed["error"]["code"] == "TASK_FAILED"
    assert "Which?" not in failed["error"]["message"]
    plans = [event["plan"] for event in events if event["type"] == "plan.update"]
    assert [task["status"] for task in plans[-1]] == ["failed"]
    assert read_answer_text(events) == "It goes on."


async def test_a_mode_honours_tool_choice_none_and_refuses_a_required_call(serve: Serve, tmp_path: Path) -> None:
    write_mode(tmp_path, 'async def run(mode):\n    return await mode.ask("Which?")\n')
    async with serve(content("No.") + finish()) as suite:
        events = await suite.ask(agent="own", tool_choice="none")
        assert read_answer_text(events) == "No."
        assert [request.tool_choice for request in suite.llm.requests] == ["none"]
        await suite.ask(agent="own", tool_choice="auto")
        assert suite.llm.requests[-1].tool_choice == "auto"
        for choice in ("required", "look"):
            failed = read_error(await suite.ask(agent="own", tool_choice=choice))
            assert (failed["code"], "toolChoice" in failed["message"]) == ("INVALID_REQUEST", True)


async def test_a_sub_agent_that_uses_up_its_modes_steps_fails_and_its_caller_continues(
    serve: Serve, tmp_path: Path
) -> None:
    steps = "async def run(mode):\n    for _ in range(9):\n        await mode.now_ms()\n"
    write_mode(tmp_path, steps, custom={"mode": "own", "maxSteps": 2})
    calling = call_tool("call_subagent", '{"task":"x","agentKey":"own"}')
    async with serve(calling, content("So.") + finish(), subagents=["own"]) as suite:
        events = await suite.ask()
    assert json.loads(only(events, "tool.result")["result"])["error"] == "BUDGET_EXCEEDED"
    assert events[-1]["type"] == "run.complete", events[-1]
