"""Every adapter's output for recorded runs is unchanged, byte for byte."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.v1 import agent_pb2
from tests.facade.recorded.adapters import READERS
from tests.facade.recorded.readings import digest, list_runs, load_digests, read_runs
from tests.facade.recorded.recorded_run import RecordedRun

HINT = """
Compare what the adapters gave out before with what they give out now:
    git stash; python -m tests.facade.recorded write /tmp/before; git stash pop
    python -m tests.facade.recorded write /tmp/after; diff -r /tmp/before /tmp/after
If it is meant to change: python -m tests.facade.recorded update, and say why in the commit."""

BATCH = 20
CHECKED_EACH = 10

checked = list_runs()[::CHECKED_EACH]
others = [run for run in list_runs() if run not in checked]
batches = [
    pytest.param(runs[at : at + BATCH], marks=marks, id=f"{runs[at].name}…")
    for runs, marks in ((checked, ()), (others, pytest.mark.nightly))
    for at in range(0, len(runs), BATCH)
]


@pytest.mark.parametrize("runs", batches)
async def test_every_adapter_still_gives_its_recorded_output(tmp_path: Path, runs: Sequence[RecordedRun]) -> None:
    digests = load_digests()
    readings = await read_runs(tmp_path, runs)
    changed = [
        f"{name} on {adapter}"
        for name, by_adapter in readings.items()
        for adapter, reading in by_adapter.items()
        if digests[name].get(adapter) != digest(reading)
    ]
    assert not changed, f"{len(changed)} have changed: {', '.join(changed[:20])}{HINT}"


def test_every_run_and_adapter_has_a_digest() -> None:
    digests = load_digests()
    assert [*digests] == [run.name for run in list_runs()]
    assert {adapter for by_adapter in digests.values() for adapter in by_adapter} == {*READERS}


def test_the_runs_contain_every_event_type() -> None:
    types = {delta.WhichOneof("payload") for run in list_runs() for delta in run.deltas}
    assert types == {field.name for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields} | {None}
