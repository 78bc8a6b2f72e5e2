"""headrace chat in a process of its own: how it shows plans, tasks and sub-agents, and what people can do."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.shown_text import SHOWN_CHARS_MAX
from headrace.v1 import agent_pb2
from tests.support.command_line import CANCELLED, GIVEN_UP_S, run, start
from tests.support.facade.scripted import (
    BLOCK,
    CHAT,
    RUN,
    Script,
    Step,
    answering,
    complete,
    delta,
    opening,
    suite,
    text,
)
from tests.support.programs import run_to_end


def tool_start(seq: int, name: str, kind: str, tool_id: str = "t_1") -> agent_pb2.AgentDelta:
    return delta(seq, tool_start=agent_pb2.ToolStart(tool_id=tool_id, run_id=RUN, tool_name=name, tool_type=kind))


def tool_end(seq: int, params: str, tool_id: str = "t_1") -> agent_pb2.AgentDelta:
    return delta(seq, tool_end=agent_pb2.ToolEnd(tool_id=tool_id, tool_params=params))


def result(seq: int, text: str, tool_id: str = "t_1") -> agent_pb2.AgentDelta:
    return delta(seq, tool_result=agent_pb2.ToolResult(tool_id=tool_id, result=text, ok=True))


def gate(seq: int, gate_id: str, kind: str, name: str, **fields: Any) -> agent_pb2.AgentDelta:
    opened = agent_pb2.GateOpen(gate_id=gate_id, kind=kind, tool_id="t_1", tool_name=name, **fields)
    return delta(seq, gate_open=opened)


def within(event: agent_pb2.AgentDelta, **ids: str) -> agent_pb2.AgentDelta:
    """Move an event into a task or a sub-agent."""
    for name, value in ids.items():
        setattr(event, name, value)
    return event


def list_submits(script: Script) -> list[Any]:
    return [request for request in script.requests if isinstance(request, agent_pb2.SubmitRequest)]


async def converse(tmp_path: Path, script: Script, *lines: str) -> str:
    """Run a conversation with these lines as input; return its output."""
    async with suite(tmp_path, script) as facade:
        code, out, complaint = await run("chat", url=facade.url, given="".join(f"{line}\n" for line in lines).encode())
    assert (code, complaint) == (0, b"")
    return out.decode()


WAITS = {
    "a choice": ("confirm_dialog", '{"question":"Sure?","choices":["no","yes"]}', "2", '{"choice":"yes"}'),
    "an answer": ("ask_human", '{"question":"Who?","choices":["Ada","Bob"]}', "1", '{"answer":"Ada"}'),
    "a default": ("ask_human", '{"question":"Who?","default":"Eve"}', "", '{"answer":"Eve"}'),
    "a form": ("address_form", '{"country":"FR"}', '{"city":"Paris"}', '{"city":"Paris"}'),
}


@pytest.mark.parametrize("wait", WAITS)
async def test_a_form_is_answered_by_an_input_line(tmp_path: Path, wait: str) -> None:
    name, params, line, payload = WAITS[wait]
    script = Script()
    script.query = [
        *opening(), tool_start(4, name, "frontend"), tool_end(5, params), gate(6, "t_1", "form", name),
        script.submitted, complete(7),
    ]  # fmt: skip
    shown = await converse(tmp_path, script, "go", line)
    (submit,) = list_submits(script)
    assert (submit.run_id, submit.tool_id, json.loads(submit.payload)) == (RUN, "t_1", json.loads(payload))
    assert ("? Sure?\n? 1. no\n? 2. yes\n" in shown) == (wait == "a choice")


@pytest.mark.parametrize(
    ("line", "payload"),
    [
        ("y", '{"decision":"approve"}'),
        ("No, not today", '{"decision":"reject","note":"not today"}'),
        ('{"text":"x"}', '{"decision":"edit","arguments":{"text":"x"}}'),
    ],
)
async def test_an_approval_is_answered_by_a_line_and_asked_again_after_an_unclear_one(
    tmp_path: Path, line: str, payload: str
) -> None:
    ask = gate(6, "approval_1", "approval", "shell", reason="rm", risk="high")
    script = Script()
    script.query = [
        *opening(), tool_start(4, "shell", "backend"), tool_end(5, '{"a":1}'), ask,
        script.submitted, result(8, "done"), complete(9),
    ]  # fmt: skip
    shown = await converse(tmp_path, script, "go", "what?", line)
    (submit,) = list_submits(script)
    assert (submit.approval_id, submit.tool_id, json.loads(submit.payload)) == ("approval_1", "", json.loads(payload))
    assert shown.count('Allow shell? {"a":1}') == 2


async def test_long_arguments_are_shown_in_full_and_approved_with_their_hash(tmp_path: Path) -> None:
    long = json.dumps({"a": "x" * SHOWN_CHARS_MAX, "to": "mal\u202elory"}, ensure_ascii=False)
    ask = gate(6, "approval_1", "approval", "shell", reason="rm", risk="high")
    script = Script(gate_sha256="5" * 64)
    script.query = [
        *opening(), tool_start(4, "shell", "backend"), tool_end(5, long), ask,
        script.submitted, result(8, "done"), complete(9),
    ]  # fmt: skip
    shown = await converse(tmp_path, script, "go", "y")
    (submit,) = list_submits(script)
    assert json.loads(submit.payload) == {"decision": "approve", "argumentsSha256": "5" * 64}
    assert long.replace("\u202e", "\\u202e") in shown


GATES = {
    "approval": (gate(4, "a_1", "approval", "shell", reason="rm"), f"answer {RUN} a_1 approve (or reject)"),
    "form": (gate(4, "t_1", "form", "book", result_schema="{}"), f"answer {RUN} t_1 JSON (of the JSON Schema {{}})"),
    "credential": (gate(4, "t_1", "credential", "mail", need={"name": "m"}), f"answer {RUN} t_1 --credential -"),
}


@pytest.mark.parametrize("kind", GATES)
async def test_without_a_terminal_a_gate_ends_the_command_but_not_the_run(tmp_path: Path, kind: str) -> None:
    gate_event, command = GATES[kind]
    async with suite(tmp_path, Script(query=[*opening(), gate_event, asyncio.Event()])) as facade:
        code, out, complaint = await run("ask", "hi", url=facade.url, given=b"y\n")
        requests = facade.script.requests
    assert (code, [type(request) for request in requests]) == (4, [agent_pb2.QueryRequest])
    assert out.endswith(b"[notice] the run waits, and continues without this command\n")
    assert f"headrace gates {command}\n" in complaint.decode()
    assert f"headrace follow {CHAT}\n" in complaint.decode()


async def test_at_a_terminal_ask_answers_the_runs_gate(tmp_path: Path) -> None:
    script = Script()
    start, end = tool_start(4, "shell", "backend"), tool_end(5, "{}")
    script.query = [
        *opening(), start, end, gate(6, "a_1", "approval", "shell"), script.submitted, result(8, "done"), complete(9),
    ]  # fmt: skip
    master, terminal = os.openpty()
    async with suite(tmp_path, script) as facade:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace.cli", "--url", facade.url, "ask", "go"),
            stdin=terminal, stdout=terminal, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        shown = b""
        async with asyncio.timeout(GIVEN_UP_S):
            while b"n(o)" not in shown:
                shown += await asyncio.to_thread(os.read, master, 4096)
            os.write(master, b"y\n")
            assert await process.wait() == 0
    os.close(master)
    (submit,) = list_submits(script)
    assert (submit.approval_id, json.loads(submit.payload)) == ("a_1", {"decision": "approve"})


async def test_cancel_and_steer_work_during_a_run(tmp_path: Path) -> None:
    script = Script()
    script.query = [*answering("half")[:-2], script.cancelled, CANCELLED]
    async with suite(tmp_path, script) as facade:
        process = await start("chat", url=facade.url)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"go\n")
        await process.stdout.readuntil(b"half")
        process.stdin.write(b"/steer be brief\nnext question\n/cancel\n")
        async with asyncio.timeout(GIVEN_UP_S):
            await process.stdout.readuntil(b"[cancelled]\n")
            script.query = answering("yes")
            process.stdin.write_eof()
            assert (await process.stdout.read()).endswith(f"yes\n> chat {CHAT}\n".encode())
            assert await process.wait() == 0
    kinds = {type(request): request for request in script.requests}
    assert kinds[agent_pb2.SteerRequest].message == "be brief"
    assert kinds[agent_pb2.CancelRequest].run_id == RUN
    assert script.requests[-1].message == "next question"


async def test_ctrl_c_at_the_prompt_leaves_the_conversation_open(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("yes"))) as facade:
        process = await start("chat", url=facade.url)
        assert process.stdout is not None
        async with asyncio.timeout(GIVEN_UP_S):
            await process.stdout.readuntil(b"\n> ")
            process.send_signal(signal.SIGINT)
            await process.stdout.readuntil(b"\n> ")
            out, _ = await process.communicate(b"go\n/exit\n")
    assert out.endswith(f"yes\nchat {CHAT}\n".encode())


async def test_questions_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "questions").write_bytes(b"one\ntwo")
    async with suite(tmp_path, Script(query=answering("yes"))) as facade:
        with (tmp_path / "questions").open() as file:
            command = (sys.executable, "-m", "headrace.cli", "chat", "--url", facade.url)
            _, out, _ = await run_to_end(*command, stdin=file, timeout_s=GIVEN_UP_S)
    assert out.count(b"yes\n") == 2
    assert [request.message for request in facade.script.requests] == ["one", "two"]


async def test_commands_between_runs_compact_switch_agents_or_print_help(tmp_path: Path) -> None:
    script = Script(query=answering("yes"))
    shown = await converse(
        tmp_path, script, "/help", "/steer x", "/compact", "/agent other", "/odd", "go", "/compact keep names"
    )
    assert shown.count("/steer TEXT") == 2, "an unknown command prints the help"
    assert "no run is going on" in shown
    assert "there is nothing to compact yet" in shown
    requests = [(request.message, request.agent_key, request.chat_id) for request in script.requests]
    assert requests == [("go", "other", ""), ("/compact keep names", "other", CHAT)]


PLANNED: list[Step] = [
    *opening(),
    delta(4, plan_create=agent_pb2.PlanCreate(plan_id="p", chat_id=CHAT, plan=[
        agent_pb2.Task(task_id="a1", description="look", status="init"),
        agent_pb2.Task(task_id="b2", description="write", status="init"),
    ])),
    within(delta(5, task_start=agent_pb2.TaskStart(task_id="a1", run_id=RUN, description="look")), task_id="a1"),
    within(tool_start(6, "find", "backend", "x"), task_id="a1"),
    within(tool_end(7, "{}", "x"), task_id="a1"),
    within(result(8, "it", "x"), task_id="a1"),
    delta(9, subagent_start=agent_pb2.SubagentStart(
        subagent_id="subagent-1", run_id=RUN, parent_id=RUN, agent_key="helper", depth=1, goal="dig")),
    within(delta(10, content_start=agent_pb2.ContentStart(content_id="s", run_id=RUN)), subagent_id="subagent-1"),
    within(delta(10, content_delta=agent_pb2.ContentDelta(content_id="s", delta="digging")), subagent_id="subagent-1"),
    delta(11, subagent_end=agent_pb2.SubagentEnd(subagent_id="subagent-1", ok=True, summary="dug")),
    delta(12, plan_update=agent_pb2.PlanUpdate(plan_id="p", chat_id=CHAT, plan=[
        agent_pb2.Task(task_id="a1", description="look", status="completed"),
        agent_pb2.Task(task_id="b2", description="write", status="init"),
    ])),
    delta(13, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN)),
    text(14, "done"),
    complete(15),
]  # fmt: skip

SHOWN = """\
[notice] plan: [init] look
[notice] plan: [init] write
[look] [tool] find() -> it
[helper: dig] [notice] sub-agent, asked: dig
[helper: dig] digging
[helper: dig] [notice] sub-agent done: dug
[notice] plan: [completed] look
done
"""


async def test_output_of_plans_tasks_and_sub_agents_is_labelled(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=PLANNED)) as facade:
        assert await run("ask", "hi", url=facade.url) == (0, SHOWN.encode(), b"")
