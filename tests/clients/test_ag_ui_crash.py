"""Fifty runs of AG-UI's client, whose facade or orchestrator is killed: nothing is lost or repeated."""

import asyncio
import json
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.clients.ag_ui import get_command
from tests.support.clients.script import ASKING, WAITING, write_asker
from tests.support.programs import starting
from tests.support.suite import fresh_suite, kill_service
from tests.support.timing import within

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        shutil.which("npm") is None, reason="NOTICE: Node is not installed: AG-UI's client is not tried"
    ),
]

COUNT = 50

SETTINGS = {"HEADRACE_FACADE_PUBLISH": "ag-ui", "HEADRACE_DRAIN_S": "0.2"}


@asynccontextmanager
async def program_with_started_runs(url: str, exercise: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start the client's program and wait until all of its runs have started."""
    async with starting(*get_command(url, exercise), stdin=PIPE, stdout=PIPE) as program:
        assert program.stdout is not None
        assert await program.stdout.readline() == b"begun\n"
        yield program


@pytest.mark.parametrize("victim", ["facade", "orchestrator"])
async def test_ag_ui_runs_are_read_to_their_end_after_a_kill(tmp_path: Path, victim: str) -> None:
    async with within(900), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play({"steps": WAITING})
        async with program_with_started_runs(suite.url, "reconnect") as program:
            suite.play(
                {"steps": [{"content": ["one ", "two ", "three"]}]}
            )  # A repeated model call is answered at once.
            os.kill(suite.services()[victim], signal.SIGKILL)
            output, _ = await program.communicate()
        model_calls = len(suite.requests())
    assert json.loads(output.splitlines()[-1]) == {"ends": ["RUN_FINISHED"], "texts": ["one two three"]}
    assert model_calls == (COUNT if victim == "facade" else 2 * COUNT)


@pytest.mark.parametrize("victim", ["facade", "orchestrator"])
async def test_an_ag_ui_interrupt_can_be_answered_after_a_kill(tmp_path: Path, victim: str) -> None:
    write_asker(tmp_path)
    async with within(600), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play(*ASKING)
        async with program_with_started_runs(suite.url, "answer") as program:
            await kill_service(suite, victim)
            output, _ = await program.communicate(b"\n")
    assert json.loads(output.splitlines()[-1]) == ["Good."]
