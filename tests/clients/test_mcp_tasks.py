"""MCP's tasks, tested with the clients that support them, and with the Python client plus an extension of ours."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from tests.support.clients.mcp_task_client import (
    TaskCancelledError,
    TaskReader,
    TasksExtension,
    answer,
    begin_tasks,
    cancel_task,
    get_task,
    open_client,
    update_task,
)
from tests.support.clients.programs import (
    PACKAGES,
    Served,
    check_row,
    find_version,
    get_environment,
    needs_node,
    run_program,
)
from tests.support.clients.script import ASKING, WAITING, write_asker
from tests.support.suite import Running, fresh_suite
from tests.support.timing import within

pytestmark = pytest.mark.asyncio(loop_scope="session")

COUNT = 50

SETTINGS = {"HEADRACE_FACADE_PUBLISH": "mcp", "HEADRACE_DRAIN_S": "0.2"}


async def decide(params: dict[str, Any]) -> dict[str, Any]:
    is_approval = "decision" in params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {"decision": "approve"} if is_approval else {"choice": "yes"}}


async def test_calls_of_a_client_with_the_tasks_extension_are_tasks(examples: Running) -> None:
    tasks = TasksExtension(decide)
    url = f"{examples.url}/mcp"
    async with within(100), Client(url, extensions=[tasks], elicitation_callback=answer) as client:
        weather = await client.call_tool("assistant", {"message": "The weather in Paris?"})
        assert weather.structured_content is not None
        assert weather.structured_content["runId"] == tasks.task_ids[0]
        booked = await client.call_tool("booker", {"message": "Book a flight to Rome"})
        assert booked.structured_content is not None
        assert "choice yes" in booked.structured_content["answer"]
        assert "input_required" in tasks.statuses
        with pytest.raises(MCPError, match="no task has this id"):
            await get_task(client.session, "11111111-1111-4111-8111-111111111111")
    async with within(100), Client(url) as client:
        with pytest.raises(MCPError, match="must declare the extension") as refused:
            await get_task(client.session, tasks.task_ids[0])
        assert (refused.value.code, "requiredCapabilities" in refused.value.data) == (-32021, True)


async def test_a_failed_task_is_a_failed_call_and_a_cancelled_one_is_cancelled(served: Served) -> None:
    tasks = TasksExtension()
    async with within(100), Client(f"{served.suite.url}/mcp", extensions=[tasks]) as client:
        failed = await client.call_tool("words", {"message": "Fail."})
        assert (failed.is_error, "PROVIDER_AUTHENTICATION" in failed.content[0].text) == (True, True)  # pyright: ignore
        waiting = asyncio.create_task(client.call_tool("words", {"message": "Wait."}))
        while len(tasks.task_ids) < 2:
            await asyncio.sleep(0.02)
        await cancel_task(client.session, tasks.task_ids[1])
        with pytest.raises(TaskCancelledError):
            await waiting


@needs_node
@pytest.mark.parametrize(("generation", "package"), [("1", "sdk"), ("2", "ext-tasks")])
async def test_the_typescript_clients_drive_tasks(examples: Running, generation: str, package: str) -> None:
    folder = get_environment("node")
    links = ["--preserve-symlinks", "--preserve-symlinks-main"]
    program = ["node", *links, folder / "programs" / "mcp_tasks.mjs", examples.url, generation]
    report = json.loads((await run_program(program)).splitlines()[-1])
    assert report == {
        "weather": "stop",
        "booked": "confirm_dialog says: choice yes",
        "published": "publish_note says: added to outputs/notes.md\n",
        "asked": True,
        "again": "stop",
        "listed": generation == "1",
        "cancelled": "cancelled",
        "refused": -32602,
    }
    check_row(f"@modelcontextprotocol/{package}", find_version(PACKAGES, f'"@modelcontextprotocol/{package}": "'))


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["facade", "orchestrator"])
async def test_tasks_survive_a_killed_service(tmp_path: Path, victim: str) -> None:
    async with within(900), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play({"steps": WAITING})
        async with open_client(f"{suite.url}/mcp") as client:
            task_ids = await begin_tasks(client, "react", "go", COUNT)
        reader = TaskReader(f"{suite.url}/mcp", task_ids)
        reading = asyncio.create_task(reader.read())
        while len(suite.requests()) < COUNT:
            await asyncio.sleep(0.05)
        suite.play({"steps": [{"content": ["one ", "two ", "three"]}]})  # A repeated model call is answered at once.
        os.kill(suite.services()[victim], signal.SIGKILL)
        results = [task.result for task in await reading]
        model_calls = len(suite.requests())
    assert {result.structured_content["answer"] for result in results} == {"one two three"}  # pyright: ignore
    assert {result.structured_content["runId"] for result in results} == set(task_ids)  # pyright: ignore
    assert len(set(task_ids)) == COUNT
    assert model_calls == (COUNT if victim == "facade" else 2 * COUNT)
    assert reader.breaks or victim == "orchestrator"


@pytest.mark.nightly
async def test_a_call_without_tasks_fails_as_retriable_when_its_run_is_lost(tmp_path: Path) -> None:
    async with within(600), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play({"steps": WAITING})
        async with Client(f"{suite.url}/mcp") as client:
            calls = [asyncio.create_task(client.call_tool("react", {"message": "go"})) for _ in range(COUNT)]
            while len(suite.requests()) < COUNT:
                await asyncio.sleep(0.05)
            os.kill(suite.services()["orchestrator"], signal.SIGKILL)
            failures = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(failure) for failure in failures} == {MCPError}
    errors = {(failure.code, failure.data["retriable"]) for failure in failures}  # pyright: ignore
    assert errors == {(-32000, True)}


@pytest.mark.nightly
async def test_a_waiting_task_survives_killed_services_and_is_answered(tmp_path: Path) -> None:
    write_asker(tmp_path)
    async with within(600), fresh_suite(tmp_path, form="--split", **SETTINGS) as suite:
        suite.play(*ASKING)
        async with open_client(f"{suite.url}/mcp") as client:
            task_ids = await begin_tasks(client, "asker", "go", 3)
        waiting_tasks = await TaskReader(f"{suite.url}/mcp", task_ids).read()
        assert {task.status for task in waiting_tasks} == {"input_required"}
        for victim in ("orchestrator", "facade"):
            os.kill(suite.services()[victim], signal.SIGKILL)
        tasks_after_kills = await TaskReader(f"{suite.url}/mcp", task_ids).read()
        assert [task.input_requests for task in tasks_after_kills] == [task.input_requests for task in waiting_tasks]
        async with open_client(f"{suite.url}/mcp") as client:
            for task in tasks_after_kills:
                (name,) = task.input_requests or {}
                response = {"action": "accept", "content": {"answer": "the old"}}
                await update_task(client.session, task.task_id, {name: response, "of nobody": response})
        ended = TaskReader(f"{suite.url}/mcp", task_ids)
        results = [task.result for task in await ended.read()]
    assert {result.structured_content["answer"] for result in results} == {"Good."}  # pyright: ignore
