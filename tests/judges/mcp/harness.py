"""Runs the program of @modelcontextprotocol/conformance and reads its findings."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.judges.environments import NODE, find_npm_environment
from tests.judges.mcp.tool_client import play_scenario
from tests.support.programs import run_to_end

HERE = Path(__file__).parent

_RESULTS = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
"""What the name of a scenario's folder of results ends with, a time."""

TIMEOUT_S = 300.0
"""For a program that hangs; those of all server scenarios take 5 s."""

CLIENT_TIMEOUT_MS = 90_000
"""The program's own limit for a client."""


async def judge_server(url: str, folder: Path) -> dict[str, dict[str, str]]:
    """Judge a server by all scenarios; return each scenario's failures by check."""
    await _run_conformance(folder, "server", "--url", url, "--suite", "all")
    return {
        _RESULTS.sub("", results.parent.name).removeprefix("server-"): _read_failures(results)
        for results in _list_results(folder)
    }


async def judge_client(scenario: str, folder: Path) -> tuple[dict[str, str], str]:
    """Judge our tools service as a client by one scenario; return the failures by check, and the client's report."""
    reports: list[str] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        given: dict[str, Any] = json.loads(await reader.readline())
        reports.append(await play_scenario(folder / "service", given["scenario"], given["context"], given["url"]))
        writer.write(json.dumps({"told": reports[-1], "code": 0}).encode() + b"\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(play, folder / "socket"):
        relay = f"{sys.executable} -I -S {HERE / 'relay.py'} {folder / 'socket'}"
        options = ["--command", relay, "--scenario", scenario, "--timeout", str(CLIENT_TIMEOUT_MS)]
        await _run_conformance(folder / "results", "client", *options)
    [results] = _list_results(folder)
    return _read_failures(results), "\n".join(reports)


async def _run_conformance(folder: Path, *arguments: str) -> None:
    environment = await asyncio.to_thread(find_npm_environment, "mcp", HERE / "package.json")
    program = environment / "node_modules" / ".bin" / "conformance"
    command: Sequence[str | Path] = [NODE, program, *arguments, "--output-dir", folder]
    # Its exit code says that something failed; which, its files do.
    _, output, _ = await run_to_end(*command, stdin=DEVNULL, stderr=STDOUT, timeout_s=TIMEOUT_S)
    assert _list_results(folder), output.decode()


def _list_results(folder: Path) -> list[Path]:
    return sorted(folder.rglob("checks.json"))


def _read_failures(results: Path) -> dict[str, str]:
    checks = json.loads(results.read_text())
    return {
        check["id"]: check.get("errorMessage") or check["description"]
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    }
