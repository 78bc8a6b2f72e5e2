"""Repeating calls that have an effect: over a real server with real commands, and on disks that refuse writes."""

import asyncio
import dataclasses
import json
import os
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest, Overloaded
from headrace.streams import reading, rpc_errors
from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.execution.effect_guard import check_effect, run_guarded
from services.tools.execution.effect_records import EffectRecord, EffectRecords, Outcome
from services.tools.toolkit.tool import RESULT_CHARS_MAX, Effect, Tool, ToolContext, make_result
from services.tools.workspace.workspace import Workspaces
from tests.support.tools.suite import CHAT, RUN, Serve, Suite

KEY = f"{RUN}/call_1/00"
COUNT = '{"command": "echo once >> counter; cat counter"}'


async def check_key(suite: Suite, key: str = KEY, tool: str = "_bash_") -> tools_pb2.CheckEffectResponse:
    with rpc_errors():
        return await suite.stub.CheckEffect(tools_pb2.CheckEffectRequest(effect_key=key, tool_name=tool, chat_id=CHAT))


class Counting:
    """A tool without a process that counts its runs."""

    def __init__(self, effect: Effect = "once", failure: Exception | None = None) -> None:
        self.runs = 0
        self.tool = Tool("counting", "", "{}", effect, self._execute)
        self._failure = failure

    async def _execute(self, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        if isinstance(self._failure, Overloaded):
            raise self._failure
        self.runs += 1
        if self._failure is not None:
            raise self._failure
        yield make_result("done")


async def perform(effects: EffectRecords, tool: Tool, folder: Path) -> tools_pb2.ToolOutcome:
    request = tools_pb2.ExecuteRequest(run_id=RUN, tool_call_id="1", effect_key=KEY, chat_id=CHAT)
    fields: dict[str, Any] = dict.fromkeys(
        field.name for field in dataclasses.fields(ToolContext)
    )  # the tool asks for none
    fields |= {"workspaces": Workspaces(folder), "request": request}
    context = ToolContext(**fields)
    async with aclosing(run_guarded(effects, tool, context)) as deltas:
        return [delta.result async for delta in deltas][-1]


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def check_state(effects: EffectRecords) -> str:
    request = tools_pb2.CheckEffectRequest(effect_key=KEY, tool_name="counting", chat_id=CHAT)
    return (await check_effect(effects, request)).state


async def test_repeating_an_ended_call_returns_its_result_without_running_it(serve: Serve) -> None:
    async with serve() as suite:
        assert (await check_key(suite)).state == "not_done"
        answers = [(await suite.execute("_bash_", COUNT, effect_key=KEY))[1] for _ in range(3)]
        known = await check_key(suite)
        _, other = await suite.execute("_bash_", COUNT, effect_key=KEY + "1")
    assert [answer.result for answer in answers] == ["once\n"] * 3
    assert {answer.tool_params for answer in answers} == {COUNT}
    assert (known.state, known.result.ok, known.result.result) == ("done", True, "once\n")
    assert other.result == "once\nonce\n"


async def test_effect_records_survive_a_restart(serve: Serve) -> None:
    async with asyncio.timeout(100):
        async with serve() as suite:
            await suite.execute("_bash_", COUNT, effect_key=KEY)
        async with serve() as suite:
            _, again = await suite.execute("_bash_", COUNT, effect_key=KEY)
    assert again.result == "once\n"


async def test_a_failed_call_is_recorded_as_an_outcome(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("_bash_", '{"command": "exit 3"}', effect_key=KEY)
        known = await check_key(suite)
    assert (known.state, known.result.ok, known.result.result) == ("done", False, "[exit code 3]")


async def test_repeating_a_running_call_is_refused_and_its_effect_is_unknown(serve: Serve) -> None:
    waiting = '{"command": "echo once >> counter; echo up; while [ ! -e go ]; do sleep 0.01; done"}'
    async with serve() as suite:
        async with reading(suite.call("_bash_", waiting, effect_key=KEY)) as deltas:
            await anext(deltas)
            with pytest.raises(Overloaded, match="running already"):
                await suite.execute("_bash_", waiting, effect_key=KEY)
            assert (await check_key(suite)).state == "unknown"
            (suite.workspace / "go").touch()
            later_deltas = [delta async for delta in deltas]
        _, again = await suite.execute("_bash_", waiting, effect_key=KEY)
        assert (suite.workspace / "counter").read_text() == "once\n"
    assert later_deltas[-1].result.result == again.result == "up\n"


async def test_a_cancelled_call_is_unknown_and_not_run_again(serve: Serve) -> None:
    waiting = '{"command": "echo once >> counter; echo up; sleep 1013.5"}'
    async with serve() as suite:
        async with reading(suite.call("_bash_", waiting, effect_key=KEY)) as deltas:
            await anext(deltas)
        while True:
            try:
                _, outcome = await suite.execute("_bash_", waiting, effect_key=KEY)
                break
            except Overloaded:  # the left one is being killed
                await asyncio.sleep(0.02)
        assert (await check_key(suite)).state == "unknown"
        assert (suite.workspace / "counter").read_text() == "once\n"
    assert not outcome.ok
    assert json.loads(outcome.result)["error"] == "unknown"


async def test_refused_arguments_leave_no_record(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("_bash_", "{}", effect_key=KEY)
        assert (await check_key(suite)).state == "not_done"


async def test_without_a_key_nothing_is_recorded(serve: Serve, tmp_path: Path) -> None:
    async with serve() as suite:
        answers = [(await suite.execute("_bash_", COUNT))[1].result for _ in range(2)]
    assert answers == ["once\n", "once\nonce\n"]
    assert not (tmp_path / "effects").exists()


async def test_an_effect_key_of_another_tools_call_is_refused(serve: Serve) -> None:
    async with serve() as suite:
        await suite.execute("_bash_", COUNT, effect_key=KEY)
        with pytest.raises(InvalidRequest, match="another tool"):
            await check_key(suite, tool="write_file")
        with pytest.raises(InvalidRequest, match="another tool"):
            await suite.execute("write_file", '{"path": "a", "content": ""}', effect_key=KEY)


async def test_a_recorded_result_is_bounded(serve: Serve, tmp_path: Path) -> None:
    async with serve() as suite:
        _, outcome = await suite.execute("_bash_", '{"command": "seq 100000"}', effect_key=KEY)
    (record,) = (tmp_path / "effects" / CHAT).iterdir()
    assert len(outcome.result) == RESULT_CHARS_MAX
    assert json.loads(record.read_text())["outcome"]["result"] == outcome.result
    assert record.stat().st_mode & 0o777 == 0o600


async def test_an_unfinished_idempotent_call_runs_again(tmp_path: Path) -> None:
    effects, counting = EffectRecords(tmp_path), Counting("idempotent")
    effects.record_start(CHAT, KEY, "counting")
    assert (await perform(effects, counting.tool, tmp_path)).ok
    assert (await perform(effects, counting.tool, tmp_path)).ok
    assert counting.runs == 1


async def test_a_call_refused_for_lack_of_capacity_may_be_retried(tmp_path: Path) -> None:
    effects, full, free = EffectRecords(tmp_path), Counting(failure=Overloaded("full")), Counting()
    with pytest.raises(Overloaded, match="full"):
        await perform(effects, full.tool, tmp_path)
    assert await check_state(effects) == "not_done"
    assert (await perform(effects, free.tool, tmp_path)).ok


@pytest.mark.parametrize("failure", [ToolFailed("no"), KeyError("our bug")])
async def test_a_failed_tool_is_not_run_again(tmp_path: Path, failure: Exception) -> None:
    effects, counting = EffectRecords(tmp_path), Counting(failure=failure)
    for _ in range(2):
        try:
            assert not (await perform(effects, counting.tool, tmp_path)).ok
        except KeyError:
            assert await check_state(effects) == "unknown"
    assert counting.runs == 1


class Full:
    """A disk that refuses every write from the given number on."""

    def __init__(self, first: int) -> None:
        self._left = first

    def __call__(self, fd: int) -> None:
        self._left -= 1
        if self._left <= 0:
            raise OSError(ENOSPC, os.strerror(ENOSPC))


@pytest.mark.parametrize("first", [1, 2, 3])
async def test_a_call_that_cannot_be_recorded_does_not_run(tmp_path: Path, first: int) -> None:
    effects, counting = EffectRecords(tmp_path, Full(first)), Counting()
    with pytest.raises(Overloaded, match="no room"):
        await perform(effects, counting.tool, tmp_path)
    assert counting.runs == 0
    assert list_files(tmp_path) == []
    assert await check_state(effects) == "not_done"


@pytest.mark.parametrize("first", [4, 5])
async def test_an_outcome_that_cannot_be_recorded_is_still_returned(tmp_path: Path, first: int) -> None:
    effects, counting = EffectRecords(tmp_path, Full(first)), Counting()
    assert (await perform(effects, counting.tool, tmp_path)).result == "done"
    await perform(EffectRecords(tmp_path), counting.tool, tmp_path)
    assert counting.runs == 1
    assert [path for path in list_files(tmp_path) if path.suffix == ".tmp"] == []


def test_only_one_of_many_replicas_starts_a_call(tmp_path: Path) -> None:
    replicas = [EffectRecords(tmp_path) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        starting = [pool.submit(effects.record_start, CHAT, KEY, "counting") for effects in replicas]
    before = [start.result() for start in starting]
    assert before.count(None) == 1
    assert {record for record in before if record} == {EffectRecord(KEY, "counting")}
    replicas[0].record_end(CHAT, EffectRecord(KEY, "counting"), Outcome(True, "done"))
    found = replicas[1].find_record(CHAT, KEY)
    assert found is not None
    assert (found.state, found.outcome) == ("ended", Outcome(True, "done"))


@pytest.mark.parametrize("chat_id", ["", "..", "../../x", f"{CHAT}/.."])
def test_a_chat_id_that_is_no_uuid_is_refused(tmp_path: Path, chat_id: str) -> None:
    with pytest.raises(InvalidRequest):
        EffectRecords(tmp_path).record_start(chat_id, KEY, "counting")
    assert not list(tmp_path.iterdir())
