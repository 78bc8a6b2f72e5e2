"""Every client of the OpenAI adapter does its exercises, with providers that do and do not accept JSON schemas."""

import json
from typing import Any

import pytest

from tests.support.clients.catalogue import CLIENTS, OTHERS, PAGE, TYPED, Client
from tests.support.clients.programs import Served
from tests.support.clients.script import EXERCISES, MODELS
from tests.support.programs import run_to_end
from tests.support.tiers import check_first

PROGRAM_TIMEOUT_S = 300.0


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    "client", check_first(CLIENTS, 2), ids=[client.program.partition(".")[0] for client in CLIENTS]
)
async def test_a_client_does_the_exercises_documented_for_it(served: Served, client: Client) -> None:
    command = client.build_command(f"{served.suite.url}/v1")
    if command is None:
        pytest.skip(f"build/clients/{client.environment} is not there: `python -m trials clients` makes it")
    report = await run_program(command)
    assert report["results"] == {name: dict.fromkeys(MODELS, EXERCISES[name]) for name in client.exercises}
    assert client.build_row(report["version"]) in PAGE.read_text().splitlines()
    if TYPED[0] in client.exercises:
        check_forms([request.body for request in served.provider.requests])


async def run_program(command: list[str]) -> Any:
    """Run a program and return the JSON of its last line."""
    code, output, complaints = await run_to_end(*command, timeout_s=PROGRAM_TIMEOUT_S)
    assert code == 0, complaints.decode()
    return json.loads(output.splitlines()[-1])


def check_forms(requests: list[Any]) -> None:
    """Assert that the schema went to the provider that accepts schemas, and to the other one as text."""
    forms = {request["model"] for request in requests if "response_format" in request}
    words = {request["model"] for request in requests if "fits this JSON Schema" in json.dumps(request["messages"])}
    assert (forms, words) == ({"schemas"}, {"words"})


def test_each_documented_client_is_tested() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert sorted(row for row in rows if row != "client") == sorted([*(client.name for client in CLIENTS), *OTHERS])
