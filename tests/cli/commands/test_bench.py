"""headrace bench as a process of its own, against a real facade whose orchestrator is scripted."""

import re
from pathlib import Path

from headrace.errors import QueueFull
from tests.support.command_line import run
from tests.support.facade.scripted import Script, answering, suite

REPORT = re.compile(
    r"runs {17}(?P<runs>.*)\n"
    r"deltas {15}(?P<deltas>\d+) in [\d.]+ s: \d+/s, [\d.]+/s a stream\n"
    r"time to first delta  p50 (?P<first_ms>[\d.]+) ms  p99 [\d.]+ ms  max [\d.]+ ms\n"
    r"gap between deltas   p50 (?P<gap_ms>[\d.]+) ms  p99 [\d.]+ ms  max (?P<gap_max_ms>[\d.]+) ms\n"
    r"this command {9}\d+% of a CPU.*\n"
)


async def test_each_stream_asks_so_many_times_and_the_deltas_are_timed(tmp_path: Path) -> None:
    steps = answering("a", "b", "c")
    steps[4:4] = [0.1]
    steps[6:6] = [0.2]
    async with suite(tmp_path, Script(query=steps)) as facade:
        code, said, _ = await run("bench", "--streams", "3", "--runs", "2", "--agent", "a", "hello", url=facade.url)
        asked = [(request.message, request.agent_key, request.on_disconnect) for request in facade.script.requests]
        deleted = len(facade.memory.deleted)
    assert code == 0
    told = REPORT.fullmatch(said.decode())
    assert told is not None, said
    assert (told["runs"], told["deltas"]) == ("6 completed", "18")
    assert asked == [("hello", "a", "cancel")] * 6
    assert deleted == 6
    assert float(told["first_ms"]) >= 100
    assert float(told["gap_ms"]) < float(told["gap_max_ms"])
    assert float(told["gap_max_ms"]) >= 190


async def test_runs_that_do_not_complete_are_counted_by_what_went_wrong(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=[QueueFull("no place for the run")])) as facade:
        code, said, _ = await run("bench", "--streams", "2", url=facade.url)
    assert code == 1
    assert said.decode().splitlines()[0].split(maxsplit=1) == ["runs", "2 no place for the run"]


async def test_a_run_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=[*answering("a")[:5], 3600.0])) as facade:
        code, said, _ = await run("bench", "--streams", "1", "--give-up-s", "0.3", url=facade.url)
        await facade.script.closed.wait()
    assert code == 1
    assert "1 not over after 0.3 s" in said.decode()


async def test_without_a_server_it_is_exit_code_3() -> None:
    code, said, _ = await run("bench", url="http://127.0.0.1:9")
    assert (code, said) == (3, b"")
