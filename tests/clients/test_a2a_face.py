"""The A2A face, tested with the official SDK in an environment of its own."""

import json

import pytest

from tests.support.clients.catalogue import ROOT
from tests.support.clients.programs import Served, check_row, get_environment, run_program
from tests.support.suite import Running
from tests.support.tiers import check_first

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROGRAM = ROOT / "tests" / "clients" / "python" / "a2a_tasks.py"


@pytest.mark.parametrize("binding", check_first(["JSONRPC", "HTTP+JSON", "GRPC"]))
async def test_the_a2a_sdk_runs_cancels_and_lists_tasks(served: Served, binding: str) -> None:
    python = get_environment("a2a") / "bin" / "python"
    report = json.loads((await run_program([python, PROGRAM, served.suite.url, binding])).splitlines()[-1])
    assert report["results"] == {
        "streamed": ["COMPLETED", "one two three", 3, "one two three", True, 2],
        "whole": ["COMPLETED", "one two three", 0, "one two three", True, 2],
        "file": "COMPLETED",
        "canceled": ["TASK_STATE_CANCELED", "first words ", "CANCELED"],
        "failed": "FAILED",
        "pushed": ["t0ken", True, "TASK_STATE_COMPLETED", True, ["one", "two"], ["one"]],
        "fifty": ["one two three"],
        "refused": [
            *(
                "ContentTypeNotSupportedError",
                "TaskNotFoundError",
                "TaskNotCancelableError",
                "UnsupportedOperationError",
            ),
            "AgentCardResolutionError",
        ],
    }
    check_row("a2a-sdk (Python)", report["version"])


async def test_the_a2a_sdk_answers_a_waiting_task(examples: Running) -> None:
    python = get_environment("a2a") / "bin" / "python"
    report = json.loads((await run_program([python, PROGRAM, examples.url, "answer"])).splitlines()[-1])
    waiting = ["INPUT_REQUIRED", "publish_note waits for approval", "COMPLETED"]
    assert report == [[*waiting, True], [*waiting, False]]
