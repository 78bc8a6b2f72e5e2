"""Fifty simultaneous tasks of A2A's SDK, whose facade or orchestrator is killed: nothing is lost or repeated."""

import asyncio
import json
import os
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.clients.catalogue import ROOT
from tests.support.clients.network import find_free_port
from tests.support.clients.programs import get_environment
from tests.support.clients.script import ASKING, WAITING, write_asker
from tests.support.suite import Suite, fresh_suite, kill_service

pytestmark = pytest.mark.nightly

PROGRAM = ROOT / "tests" / "clients" / "python" / "a2a_reconnect.py"
ANSWERING = PROGRAM.with_name("a2a_answer.py")

COUNT = 50


def publishing(folder: Path, form: str) -> AbstractAsyncContextManager[Suite]:
    # A fixed port: clients reconnect to the address in the card.
    listen = f"127.0.0.1:{find_free_port()}"
    settings = {"HEADRACE_FACADE_PUBLISH": "a2a", "HEADRACE_FACADE_A2A_LISTEN": listen, "HEADRACE_DRAIN_S": "0.2"}
    return fresh_suite(folder, form=form, **settings)


@pytest.mark.parametrize(
    ("form", "victim", "binding"),
    [("--split", "facade", "GRPC"), ("--split", "orchestrator", "JSONRPC"), ("--one-process", "suite", "GRPC")],
)
async def test_tasks_are_read_to_their_end_after_a_kill(tmp_path: Path, form: str, victim: str, binding: str) -> None:
    python = get_environment("a2a") / "bin" / "python"
    async with asyncio.timeout(900), publishing(tmp_path, form) as suite:
        suite.play({"steps": WAITING})
        command = (python, PROGRAM, suite.url, binding, "react", str(COUNT))
        reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert reader.stdout is not None
        assert await reader.stdout.readline() == b"begun\n"
        suite.play({"steps": [{"content": ["one ", "two ", "three"]}]})  # A repeated model call is answered at once.
        os.kill(suite.services()[victim], signal.SIGKILL)
        report = json.loads(await reader.stdout.readline())
        assert await reader.wait() == 0
        model_calls = len(suite.requests())
    assert report == {"texts": ["one two three"], "states": ["TASK_STATE_COMPLETED"], "tasks": COUNT, "broken": COUNT}
    assert model_calls == (COUNT if victim == "facade" else 2 * COUNT)


@pytest.mark.parametrize("binding", ["JSONRPC", "GRPC"])
async def test_waiting_tasks_can_be_answered_after_kills(tmp_path: Path, binding: str) -> None:
    python = get_environment("a2a") / "bin" / "python"
    write_asker(tmp_path)
    async with asyncio.timeout(900), publishing(tmp_path, "--split") as suite:
        suite.play(*ASKING)
        program = await asyncio.create_subprocess_exec(
            *(python, ANSWERING, suite.url, binding, "asker", "5"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        assert await program.stdout.readline() == b"begun\n"
        for victim in ("orchestrator", "facade"):
            await kill_service(suite, victim)
        output, _ = await program.communicate(b"\n")
    assert json.loads(output) == {
        "waited": ["TASK_STATE_INPUT_REQUIRED"],
        "states": ["TASK_STATE_COMPLETED"],
        "texts": ["Good."],
    }
