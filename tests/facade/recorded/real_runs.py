"""Recorded runs of the examples' agents, and of conversations that end oddly.

Each line of `real_runs.jsonl` is a run: its name and its events as JSON, without timestamps; $R stands for the run's id
and $C for its chat's.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.event_json import parse_event
from tests.facade.recorded.recorded_run import BEGAN_AT_MS, CHAT, RUN, RecordedRun

PATH = Path(__file__).with_name("real_runs.jsonl")

MILLISECONDS = re.compile(r"\b1[789]\d{11}\b")
"""A time of 2024 and later."""


def load_runs() -> Iterator[RecordedRun]:
    for line in PATH.read_text().splitlines():
        name, *events = json.loads(line.replace("$R", RUN).replace("$C", CHAT))
        deltas = [
            parse_event(json.dumps(event | {"timestamp": BEGAN_AT_MS + 7 * event["seq"]}, ensure_ascii=False))
            for event in events
        ]
        yield RecordedRun(name, deltas)


def save_runs(runs: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    PATH.write_text("".join(f"{line}\n" for line in _format_runs(runs)))


def _format_runs(runs: Mapping[str, Sequence[dict[str, Any]]]) -> Iterable[str]:
    for name, events in runs.items():
        [start] = [event for event in events if event["type"] == "run.start"]
        untimed = [{key: value for key, value in event.items() if key != "timestamp"} for event in events]
        text = json.dumps([name, *untimed], ensure_ascii=False, separators=(",", ":"))
        for letter, id in (("R", start["runId"]), ("C", start["chatId"])):
            text = text.replace(id, f"${letter}").replace(id.replace("-", ""), f"${letter}")
        yield MILLISECONDS.sub(str(BEGAN_AT_MS), text)
