"""The public fold on the cases that readers in other languages are tested with, too."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.event_json import parse_event
from headrace.runs.fold import fold_events
from tests.support.folds import describe_fold

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "fold_cases.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_events_of_a_case_fold_to_its_state(case: dict[str, Any]) -> None:
    deltas = [parse_event(json.dumps(event, ensure_ascii=False, separators=(",", ":"))) for event in case["events"]]
    assert describe_fold(fold_events(deltas)) == case["state"]
    assert list(describe_fold(fold_events(deltas))["blocks"]) == list(case["state"]["blocks"])


def test_the_fold_imports_only_what_the_light_client_needs() -> None:
    code = "import sys, headrace.client, headrace.event_json, headrace.runs.fold; print(*sorted(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    ours = {name for name in printed.split() if name.startswith(("headrace.", "services"))}
    assert {name for name in ours if not name.startswith("headrace.v1.")} == {
        f"headrace.{name}"
        for name in (
            *("call_arguments", "calls", "chat_pages", "client", "contract", "errors", "event_json", "regular_files"),
            *("run_stream", "runs", "runs.fold", "runs.parts", "streams", "tls", "v1"),
        )
    }
    assert not {"msgspec", "orjson", "click", "aiohttp", "pydantic"} & set(printed.split())
