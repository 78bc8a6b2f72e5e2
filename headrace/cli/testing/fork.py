"""headrace fork: continues a recorded run differently."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headrace.cassette.lines import Cassette, CassetteError, read_cassette
from headrace.cli.evaluation.asking import follow, take_state
from headrace.cli.evaluation.fork_point import NoForkPoint, make_query
from headrace.cli.evaluation.result import Result
from headrace.cli.evaluation.suite import make_trial, read_prompt
from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import COMPLETED, FAILED
from headrace.event_json import parse_event
from headrace.regular_files import read_regular_file
from headrace.run_states import State
from headrace.runs.fold import Fold

FILE_BYTES_MAX = 256 * 1024 * 1024

TIMEOUT_MS = 600_000


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=FacadeCommand)
@click.option("--from", "step", required=True, type=click.IntRange(1), help="Step to repeat: the n-th model call.")
@click.option("--agent", help="Key of the agent that continues. Default: the recorded one, as it is now.")
@click.option("--agent-version", type=click.IntRange(1), help="Version of the agent. Default: the one in force.")
@click.option("--model", metavar="MODEL", help="Another model, as PROVIDER/NAME or a name of the agent's provider.")
@click.option("--prompt", type=_FILE, help="File with another system prompt.")
@click.option(
    "--tool-result",
    "results",
    multiple=True,
    metavar="CALL=TEXT",
    help="Replace the result of an earlier call, by id or tool name. Repeatable.",
)
@click.argument("cassette", type=_FILE)
def fork(
    step: int,
    agent: str | None,
    agent_version: int | None,
    model: str | None,
    prompt: Path | None,
    results: tuple[str, ...],
    cassette: Path,
) -> None:
    """Continue a recorded run live from a step.

    The fork runs in a new chat, and both runs are shown side by side. Messages before the step are taken from the
    recording. From there on, the agent works as currently configured, or according to the options (--model and --prompt
    need the scope `publish`). Runs with a plan cannot be forked. Exit codes: 0 the fork completed, 1 it did not, 2
    wrong usage, 3 no server.
    """
    try:
        recorded = read_cassette(read_regular_file(cassette, FILE_BYTES_MAX).splitlines())
        query = make_query(recorded, step, _read_results(results))
        text = None if prompt is None else read_prompt(prompt)
    except (CassetteError, NoForkPoint, OSError) as error:
        raise click.UsageError(f"{cassette}: {error}") from error
    if trial := make_trial(model, text):
        query["trial"] = trial
    query |= {name: value for name, value in (("agentKey", agent), ("agentVersion", agent_version)) if value}
    forked = asyncio.run(_ask(query))
    _show(_read_result(recorded), forked, step)
    sys.exit(COMPLETED if forked.state == State.COMPLETED else FAILED)


def _read_results(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if wrong := next((text for text, (_, sign, _) in zip(given, pairs, strict=True) if not sign), None):
        raise click.BadParameter(f"{wrong!r} is no CALL=TEXT", param_hint="--tool-result")
    return {call: text for call, _, text in pairs}


async def _ask(query: dict[str, Any]) -> Result:
    result = Result("", "", "fork", 1)
    async with FacadeClient() as facade:
        await follow(facade, query, result, TIMEOUT_MS)
    return result


def _read_result(cassette: Cassette) -> Result:
    state, result = Fold(), Result("", "", "recorded", 1)
    for line in cassette.recorder:
        if line.kind == "event":
            state.apply(parse_event(json.dumps(line.given["event"])))
            result.latency_ms = line.at
    take_state(state, result)
    return result


def _show(recorded: Result, forked: Result, step: int) -> None:
    table = Table("", "recorded", f"from step {step}", show_lines=True)
    for (name, one), (_, other) in zip(_list_rows(recorded), _list_rows(forked), strict=True):
        table.add_row(name, one, other)
    Console(highlight=False, markup=False).print(table)


def _list_rows(result: Result) -> list[tuple[str, str]]:
    calls = "\n".join(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in result.calls)
    cost = "-" if result.cost_usd is None else f"${result.cost_usd:.6f}"
    return [
        ("answer", result.answer or result.error),
        ("state", result.state or "not started"),
        ("calls", calls or "none"),
        ("steps", str(result.steps)),
        ("tokens", f"{result.input_tokens} in, {result.output_tokens} out"),
        ("cost", cost),
        ("time", f"{result.latency_ms:.0f} ms"),
    ]
