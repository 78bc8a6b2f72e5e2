"""Fifty runs of AG-UI's client, their facade or orchestrator killed in mid-answer: nothing is lost, nor twice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from tests.clients.script import call
from tests.clients.test_ag_ui_face import get_command
from tests.e2e.suite import MODEL, Suite, fresh_suite
from tests.support.timing import within

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None, reason="NOTICE: Node is not installed: AG-UI's client is not tried"
)

COUNT = 50

WAIT_MS = 20_000
"""For how long the model is silent in mid-answer: longer than a facade takes to be killed."""

SETTINGS = {"HEADRACE_FACADE_PUBLISH": "ag-ui", "HEADRACE_DRAIN_S": "0.2"}

ASKER = {
    "mode": "REACT",
    "modelConfig": MODEL,
    "toolConfig": {"frontends": ["ask_human"]},
    "react": {"systemPrompt": "Ask."},
}


@asynccontextmanager
async def begun(url: str, exercise: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The client's program, when it has said that all of its runs have begun."""
    program = await asyncio.create_subprocess_exec(
        *get_command(url, exercise), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert program.stdout is not None
        assert await program.stdout.readline() == b"begun\n"
        yield program
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


async def is_ready(suite: Suite) -> bool:
    with suppress(aiohttp.ClientError):
        async with suite.http.get(f"{suite.url}/readyz?all") as response:
            return response.status == 200
    return False


async def kill_service(suite: Suite, victim: str) -> None:
    """Kill a service, and wait until another process is in its place."""
    killed = suite.services()[victim]
    os.kill(killed, signal.SIGKILL)
    while suite.services().get(victim, killed) == killed or not await is_ready(suite):
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("victim", ["facade", "orchestrator"])
async def test_runs_are_read_on_where_their_reader_was(tmp_path: Path, victim: str) -> None:
    async with within(900), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play({"steps": [{"content": ["one ", "two "]}, {"waitMs": WAIT_MS}, {"content": "three"}]})
        async with begun(suite.url, "reconnect") as program:
            suite.play({"steps": [{"content": ["one ", "two ", "three"]}]})  # what is asked again is answered at once
            os.kill(suite.services()[victim], signal.SIGKILL)
            output, _ = await program.communicate()
        asked = len(suite.requests())
    assert json.loads(output.splitlines()[-1]) == {"ends": ["RUN_FINISHED"], "texts": ["one two three"]}
    assert asked == (COUNT if victim == "facade" else 2 * COUNT)


@pytest.mark.parametrize("victim", ["facade", "orchestrator"])
async def test_an_interrupt_is_answered_after_a_kill(tmp_path: Path, victim: str) -> None:
    agents = tmp_path / "config" / "agents"
    agents.mkdir(parents=True)
    (agents / "asker.json").write_text(json.dumps(ASKER))
    question = call("ask_human", json.dumps({"question": "Which mill?"}))
    async with within(600), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play({"match": {"turn": 1}, "steps": [question]}, {"steps": [{"content": "Good."}]})
        async with begun(suite.url, "answer") as program:
            await kill_service(suite, victim)
            output, _ = await program.communicate(b"\n")
    assert json.loads(output.splitlines()[-1]) == ["Good."]
