"""A supervised process; small Python programs replace services."""

import asyncio
import importlib
import os
import signal
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from headrace.cli.supervisor.child_environment import OWNER, select_environment
from headrace.cli.supervisor.child_process import LOG_BYTES_MAX, ChildProcess
from headrace.cli.supervisor.ports import CannotStart
from headrace.cli.supervisor.suite_plan import ProcessSpec
from services.runtime.process.config import SERVICES, SHARED, list_variables


def make_child(folder: Path, program: str, said: list[str] | None = None, *, is_verbose: bool = False) -> ChildProcess:
    spec = ProcessSpec("thing", (sys.executable, "-c", program), {"FOLDER": str(folder)})
    report = (said if said is not None else list[str]()).append
    return ChildProcess(spec, folder, is_verbose=is_verbose, report=report, log_looks_s=0.05)


@pytest.mark.parametrize("is_verbose", [False, True])
async def test_wrong_settings_fail_the_start_with_the_processs_own_message(tmp_path: Path, is_verbose: bool) -> None:
    program = "import sys; sys.stderr.write('thing: HEADRACE_X: not set\\n'); sys.exit(2)"
    async with asyncio.timeout(100):
        with pytest.raises(CannotStart, match="thing cannot start:\nthing: HEADRACE_X: not set"):
            await make_child(tmp_path, program, is_verbose=is_verbose).supervise()


async def test_exit_code_78_fails_the_start_at_once_with_the_logged_error(tmp_path: Path) -> None:
    line = '{"level":"error","event":"cannot start","error":"the database refuses: wrong password"}'
    said: list[str] = []
    async with asyncio.timeout(100):
        with pytest.raises(
            CannotStart, match=r"^thing cannot start:\ncannot start: the database refuses: wrong password$"
        ):
            await make_child(tmp_path, f"import sys; print({line!r}); sys.exit(78)", said).supervise()
    assert said == []


async def test_a_process_that_dies_slowly_is_given_up_too(tmp_path: Path) -> None:
    """On a slow machine three deaths may take longer than any time window."""
    supervised = make_child(tmp_path, "import sys, time; time.sleep(4); sys.exit(1)")
    async with asyncio.timeout(100):
        with pytest.raises(CannotStart, match="it logged nothing"):
            await supervised.supervise()


async def test_three_deaths_before_readiness_fail_the_start_with_the_logged_error(tmp_path: Path) -> None:
    lines = ('{"level":"info","event":"hello"}', '{"level":"error","event":"no","error":"busy"}')
    program = f"import sys; print(*{lines!r}, sep=chr(10)); sys.exit(1)"
    said: list[str] = []
    async with asyncio.timeout(100):
        with pytest.raises(CannotStart, match=r"^thing cannot start:\nno: busy$"):
            await make_child(tmp_path, program, said).supervise()
    assert len(said) == 2


async def test_a_killed_process_is_restarted_and_stop_ends_it(tmp_path: Path) -> None:
    program = "import os, pathlib, time; pathlib.Path(os.environ['FOLDER'], str(os.getpid())).touch(); time.sleep(3600)"
    said: list[str] = []
    async with asyncio.timeout(100):
        supervised = make_child(tmp_path, program, said)
        task = asyncio.create_task(supervised.supervise())
        first = await _wait_for_pid(tmp_path, 1)
        os.kill(first, signal.SIGKILL)
        second = await _wait_for_pid(tmp_path, 2)
        await supervised.stop()
        await task
    assert first != second
    assert said == [f"thing ended with -9; starting it again (log: {tmp_path}/thing.log)"]
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


async def test_a_starting_process_can_be_stopped(tmp_path: Path) -> None:
    supervised = make_child(tmp_path, "import time; time.sleep(3600)")
    async with asyncio.timeout(100):
        task = asyncio.create_task(supervised.supervise())
        await asyncio.sleep(0)
        await supervised.stop()
        await task
    assert supervised.measure_cpu_s() == 0, "no process is left"


async def test_a_log_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    log = tmp_path / "thing.log"
    log.touch(0o644)
    async with asyncio.timeout(100):
        with pytest.raises(CannotStart, match="no such thing"):
            await make_child(tmp_path, "import sys; sys.stderr.write('no such thing'); sys.exit(2)").supervise()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_verbose", [False, True])
async def test_a_log_is_rotated_whenever_it_is_large(tmp_path: Path, is_verbose: bool) -> None:
    log, aside = tmp_path / "thing.log", tmp_path / "thing.log.1"
    program = "import time\nwhile True: print('said', flush=True); time.sleep(0.01)"
    async with asyncio.timeout(100):
        supervised = make_child(tmp_path, program, is_verbose=is_verbose)
        task = asyncio.create_task(supervised.supervise())
        for _ in range(2):
            while not (log.exists() and log.stat().st_size):
                await asyncio.sleep(0.01)
            os.truncate(log, LOG_BYTES_MAX + 1)
            while log.stat().st_size > LOG_BYTES_MAX or not log.stat().st_size:
                await asyncio.sleep(0.01)
            assert aside.stat().st_size > LOG_BYTES_MAX
            assert log.read_bytes().startswith(b"said\n"), "the next line is at the beginning"
        await supervised.stop()
        await task


async def test_the_last_lines_of_a_rotated_log_are_reported(tmp_path: Path) -> None:
    log = tmp_path / "thing.log"
    log.touch()
    os.truncate(log, LOG_BYTES_MAX + 1)
    program = (
        "import os, pathlib, sys, time\n"
        f"while os.path.getsize({str(log)!r}): time.sleep(0.01)\n"
        "sys.stderr.write('thing: HEADRACE_X: not set'); sys.exit(2)"
    )
    async with asyncio.timeout(100):
        with pytest.raises(CannotStart, match="HEADRACE_X: not set"):
            await make_child(tmp_path, program).supervise()


async def _wait_for_pid(folder: Path, count: int) -> int:
    """Wait for `count` files; return the pid of the process that wrote the newest."""
    while len(found := _list_pids(folder)) < count:
        await asyncio.sleep(0.01)
    return found[-1]


def _list_pids(folder: Path) -> list[int]:
    files = [path for path in folder.iterdir() if path.name.isdigit()]
    return [int(path.name) for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)]


NAMES = ("facade", "orchestrator", "llm_gateway", "memory", "tools")


def list_receivers(name: str, folder: Path) -> set[str]:
    """Return the processes that get the variable `name`."""
    return {service for service in (*NAMES, "simulator") if select_environment(service, {name: "x"}, folder)}


@pytest.mark.parametrize(
    ("name", "services"),
    [
        ("OPENAI_API_KEY", {"llm_gateway"}),
        ("AWS_SECRET_ACCESS_KEY", {"llm_gateway", "memory"}),
        ("HEADRACE_DATABASE_URL", {"memory"}),
        ("PGPASSWORD", {"memory"}),
        ("HEADRACE_TOKEN", set[str]()),
        ("HEADRACE_TOOLS_SEARCH_KEY", {"tools"}),
        ("HEADRACE_LLM_GATEWAY_REPLICAS", {"llm_gateway"}),
        ("HEADRACE_GATEWAY_LISTEN", set[str]()),
        ("HEADRACE_INTERNAL_TOKEN", set(NAMES)),
        ("HEADRACE_SPELLED_WRONG", set(NAMES)),
        ("PATH", {*NAMES, "simulator"}),
        ("https_proxy", {*NAMES, "simulator"}),
    ],
)
def test_a_variable_is_passed_only_to_the_services_that_need_it(name: str, services: set[str], tmp_path: Path) -> None:
    assert list_receivers(name, tmp_path) == services


def test_the_tools_service_gets_the_variables_named_in_mcp_json(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"url": "http://a/", "headers": {"A": "env:A_TOKEN"}}}}')
    assert list_receivers("A_TOKEN", tmp_path) == {"tools", "llm_gateway"}
    assert list_receivers("B_TOKEN", tmp_path) == {"llm_gateway"}


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_a_service_reaches_it(name: str, tmp_path: Path) -> None:
    config = importlib.import_module(f"services.{name}.config").Config
    aliases = {alias for item in fields(config) for alias in item.metadata.get("aliases", ())}
    for variable in {*list_variables(config, name.upper()), *aliases}:
        assert name in list_receivers(variable, tmp_path), variable


def test_the_owner_pattern_matches_all_services() -> None:
    for service in SERVICES:
        assert OWNER.match(f"HEADRACE_{service}_X")
    assert not any(OWNER.match(name) for name in SHARED)
