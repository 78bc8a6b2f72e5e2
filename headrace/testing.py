"""Fixtures for tests of agents, as a plugin of pytest: `pytest_plugins = ["headrace.testing"]` in a conftest.py.

    def test_the_assistant_looks_things_up(headrace_suite):
        headrace_suite.play([
            {"match": {"turn": 1}, "steps": [{"toolCall": "look_up", "arguments": "{}"}]},
            {"steps": [{"content": "Take a coat."}]},
        ])
        run = headrace_suite.ask("What is the weather?", agent="assistant")
        run.assert_called("look_up")
        assert run.answer == "Take a coat."

The suite is `headrace up` in processes of its own, on free ports, over the folder of the ini setting
`headrace_config_dir`, before a simulated provider that plays what a test says (docs/guides/testing.md).
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from headrace.cli.supervisor.ports import reserve_port
from headrace.client import Client
from headrace.runs.fold import Fold
from headrace.runs.parts import Block
from headrace.v1 import agent_pb2

READY = re.compile(r"ready: (?P<url>http://\S+)\s+grpc (?P<grpc>\S+)\s+memory (?P<memory>\S+)")

RUN_TIMEOUT_S = 300.0
"""Timeout of a run."""

OnEvent = Callable[["Suite", agent_pb2.AgentDelta, Fold], None]
"""Called with each event of a run, to act as a user would: the suite, the event, and the run's state so far."""


class Run:
    """The record of a run, with assertions that report what it did instead."""

    def __init__(self, state: Fold, events: Sequence[agent_pb2.AgentDelta]) -> None:
        self.state = state
        self.events = events

    @property
    def answer(self) -> str:
        return self.state.answer

    @property
    def calls(self) -> list[Block]:
        """Return the tool calls, in order."""
        return [block for block in self.state.blocks.values() if block.is_call]

    @property
    def end(self) -> str:
        """Return the terminal event: run.complete, run.cancel or run.error; empty if there is none."""
        return "" if self.state.end is None else (self.state.end.WhichOneof("payload") or "").replace("_", ".", 1)

    def find_calls(self, name: str, **arguments: Any) -> list[Block]:
        """Return the calls of a tool that have at least these arguments."""
        named = [call for call in self.calls if call.name == name]
        return [call for call in named if arguments.items() <= _read_arguments(call).items()]

    def assert_called(self, name: str, *, times: int | None = None, **arguments: Any) -> None:
        """Assert that a tool was called with at least these arguments, once or more, or exactly `times` times."""
        found = len(self.find_calls(name, **arguments))
        wanted = "called" if times is None else f"called {times} times"
        is_right = found > 0 if times is None else found == times
        assert is_right, f"{name}({arguments}) was not {wanted}: {self._say_calls()}"

    def assert_not_called(self, name: str = "") -> None:
        """Assert that a tool was not called; without a name, that no tool was called."""
        assert not (self.find_calls(name) if name else self.calls), f"called: {self._say_calls()}"

    def assert_completed(self) -> None:
        error = "" if self.state.end is None else self.state.end.run_error.error.message
        assert self.end == "run.complete", f"the run ended with {self.end or 'nothing'} {error}"

    def assert_events(self, *kinds: str) -> None:
        """Assert that events of these types came in this order, possibly with others in between."""
        seen = [(event.WhichOneof("payload") or "").replace("_", ".", 1) for event in self.events]
        left = iter(seen)
        missing = next((kind for kind in kinds if kind not in left), None)
        assert missing is None, f"{missing} did not come in its place: {seen}"

    def _say_calls(self) -> str:
        return ", ".join(f"{call.name}({call.params or call.text})" for call in self.calls) or "nothing"


class Suite:
    """A running suite and its simulated provider."""

    def __init__(self, url: str, grpc: str, memory: str, provider: str) -> None:
        self.url = url
        """URL of the HTTP facade."""
        self.grpc = grpc
        self.memory = memory
        self._provider = provider

    def play(self, rules: Sequence[dict[str, Any]]) -> None:
        """Make the provider play these rules from now on; without rules it uses its default answers.

        Raises:
            ValueError: A rule is invalid.
        """
        try:
            urlopen(f"{self._provider}/simulator/script", json.dumps(list(rules)).encode()).close()
        except HTTPError as error:
            raise ValueError(json.load(error)["error"]["message"]) from error

    def list_requests(self) -> list[dict[str, Any]]:
        """Return the bodies of the provider's most recent requests, oldest first."""
        with urlopen(f"{self._provider}/simulator/requests") as response:
            return [request["body"] for request in json.load(response)["requests"]]

    def ask(self, message: str, *, agent: str, on_event: OnEvent | None = None, **fields: Any) -> Run:
        """Ask, wait for the run to end, and return its record; `fields` are those of `Client.ask`."""
        return asyncio.run(self._ask(message, agent, on_event, fields))

    async def _ask(self, message: str, agent: str, on_event: OnEvent | None, fields: dict[str, Any]) -> Run:
        events: list[agent_pb2.AgentDelta] = []
        async with (
            asyncio.timeout(RUN_TIMEOUT_S),
            self.client() as client,
            client.ask(message, agent_key=agent, **fields) as run,
        ):
            async for event in run:
                events.append(event)
                if on_event is not None:
                    await asyncio.to_thread(on_event, self, event, run.state)
            return Run(run.state, events)

    def submit(self, run_id: str, payload: Any, *, tool_id: str | None = None, approval_id: str | None = None) -> str:
        """Answer a form or an approval as a user would; return the status."""

        async def submit() -> str:
            async with self.client() as client:
                text = json.dumps(payload)
                return (await client.submit(run_id, text, tool_id=tool_id, approval_id=approval_id)).status

        return asyncio.run(submit())

    def client(self) -> Client:
        """Return a client, to be opened with `async with`."""
        return Client(self.grpc, memory_address=self.memory)


@contextmanager
def running_suite(config_dir: Path, folder: Path) -> Generator[Suite]:
    """Run a suite with a configuration folder inside the block; its data is in `folder`."""
    # The port is reserved first, so that neither process waits for the other.
    with reserve_port("--port", 0) as port:
        provider = f"http://127.0.0.1:{port}"
        places = ("--config-dir", str(config_dir), "--data-dir", str(folder / "data"))
        ports = ("--port", "0", "--grpc-port", "0", "--memory-port", "0")
        with (
            _started("-m", "services.simulator", "--port", str(port), "--pace-ms", "0") as simulator,
            _started("-m", "headrace.cli", "up", *places, *ports, SIMULATOR_URL=f"{provider}/v1") as suite,
        ):
            _read_line(simulator, re.compile("http"))
            ready = _read_line(suite, READY)
            yield Suite(ready["url"], ready["grpc"], ready["memory"], provider)


@contextmanager
def _started(*arguments: str, **environment: str) -> Generator[subprocess.Popen[str]]:
    settings = [f"{name}={value}" for name, value in environment.items()]
    process = subprocess.Popen(["env", *settings, sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _read_line(process: subprocess.Popen[str], wanted: re.Pattern[str]) -> re.Match[str]:
    assert process.stdout is not None, "it is a pipe"
    for line in process.stdout:
        if (match := wanted.search(line)) is not None:
            return match
    raise RuntimeError(f"{process.args} ended with {process.wait()} before it was ready; see its output above")


def _read_arguments(call: Block) -> dict[str, Any]:
    try:
        given = json.loads(call.params or call.text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("headrace_config_dir", "Folder with the agents, tools and providers to be tested.", default=".")


@pytest.fixture(scope="session")
def headrace_shared_suite(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Generator[Suite]:
    """One suite for all tests, because a suite takes a moment to start."""
    config_dir = pytestconfig.rootpath / str(pytestconfig.getini("headrace_config_dir"))
    with running_suite(config_dir, tmp_path_factory.mktemp("headrace")) as suite:
        yield suite


@pytest.fixture
def headrace_suite(headrace_shared_suite: Suite) -> Suite:
    """The suite, with a provider without rules."""
    headrace_shared_suite.play([])
    return headrace_shared_suite


@pytest.fixture
def headrace_replay() -> Callable[..., None]:
    """Return a function that replays a cassette without a suite and fails with the first differing line.

    With `run_modes` it runs the code of custom modes in the cassette.
    """

    def replay(cassette: Path | str, *, run_modes: bool = False) -> None:
        options = ["--run-modes"] if run_modes else []
        command = [sys.executable, "-m", "headrace.cli", "replay", *options, str(cassette)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr.strip()

    return replay
