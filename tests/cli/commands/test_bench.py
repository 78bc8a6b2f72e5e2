"""headrace bench in a process of its own, against a real facade with a scripted orchestrator."""

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


async def test_bench_runs_each_stream_several_times_and_measures_deltas(tmp_path: Path) -> None:
    steps = answering("a", "b", "c")
    steps[4:4] = [0.1]
    steps[6:6] = [0.2]
    async with suite(tmp_path, Script(query=steps)) as facade:
        code, output, _ = await run("bench", "--streams", "3", "--runs", "2", "--agent", "a", "hello", url=facade.url)
        queries = [(request.message, request.agent_key, request.on_disconnect) for request in facade.script.requests]
        deleted = len(facade.memory.deleted)
    assert code == 0
    match = REPORT.fullmatch(output.decode())
    assert match is not None, output
    assert (match["runs"], match["deltas"]) == ("6 completed", "18")
    assert queries == [("hello", "a", "cancel")] * 6
    assert deleted == 6
    assert float(match["first_ms"]) >= 100
    assert float(match["gap_ms"]) < float(match["gap_max_ms"])
    assert float(match["gap_max_ms"]) >= 190


async def test_runs_that_fail_are_counted_by_reason(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=[QueueFull("no place for the run")])) as facade:
        code, output, _ = await run("bench", "--streams", "2", url=facade.url)
    assert code == 1
    assert output.decode().splitlines()[0].split(maxsplit=1) == ["runs", "2 no place for the run"]


async def test_a_run_longer_than_the_limit_is_abandoned(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=[*answering("a")[:5], 3600.0])) as facade:
        code, output, _ = await run("bench", "--streams", "1", "--give-up-s", "0.3", url=facade.url)
        await facade.script.closed.wait()
    assert code == 1
    assert "1 not over after 0.3 s" in output.decode()


async def test_bench_without_a_server_gives_exit_code_3() -> None:
    code, output, _ = await run("bench", url="http://127.0.0.1:9")
    assert (code, output) == (3, b"")
