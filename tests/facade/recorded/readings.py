"""All runs on all adapters, and their digests: a line per run in `digests.json`, eight letters per adapter."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.facade.recorded.adapters import PUBLISH, READERS
from tests.facade.recorded.made_runs import make_runs
from tests.facade.recorded.real_runs import load_runs
from tests.facade.recorded.recorded_run import RecordedRun
from tests.support.facade.scripted import Script, suite

DIGESTS = Path(__file__).with_name("digests.json")
DIGEST_CHARS = 8

BATCH = 10
"""Runs that a facade is served for."""

MADE, ODD = 180, 74


@cache
def list_runs() -> Sequence[RecordedRun]:
    return [*load_runs(), *make_runs(MADE, ODD)]


async def read_runs(folder: Path, runs: Sequence[RecordedRun]) -> dict[str, dict[str, bytes]]:
    """Return each adapter's output for each run; `folder` is for sockets."""
    readings: dict[str, dict[str, bytes]] = {}
    for at in range(0, len(runs), BATCH):
        async with suite(folder, Script(publish=PUBLISH)) as facade:
            for run in runs[at : at + BATCH]:
                readings[run.name] = {adapter: await read(facade, run) for adapter, read in READERS.items()}
    return readings


def digest(reading: bytes) -> str:
    return sha256(reading).hexdigest()[:DIGEST_CHARS]


def load_digests() -> dict[str, dict[str, str]]:
    """Return the digests by run and adapter."""
    lines: dict[str, str] = json.loads(DIGESTS.read_text())
    adapters = lines.pop("adapters").split()
    return {name: dict(zip(adapters, line.split(), strict=True)) for name, line in lines.items()}


def save_digests(readings: Mapping[str, Mapping[str, bytes]]) -> None:
    lines = {"adapters": " ".join(READERS)}
    lines |= {name: " ".join(map(digest, by_adapter.values())) for name, by_adapter in readings.items()}
    DIGESTS.write_text(json.dumps(lines, indent=1) + "\n")
