"""Honest load by grpc-go with its default options, for seconds; `python -m trials grpc-load` has minutes of four
clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from trials.grpc_load.__main__ import EXPECTED
from trials.grpc_load.clients import CLIENTS
from trials.grpc_load.runs import Load, run_load

FAST_MODEL = Load(streams=1, per_s=400)
SECONDS = 8.0
"""Twice the time after which it breaks."""


@pytest.mark.xfail(strict=True, raises=AssertionError, reason=EXPECTED["grpc-go", FAST_MODEL])
async def test_grpc_go_reads_a_fast_model_to_its_end(judge: Path) -> None:
    result = await run_load(CLIENTS["grpc-go"], FAST_MODEL, SECONDS, "h2")
    if result.complaint or result.missing:
        raise RuntimeError(result.complaint)  # the client did not run
    assert result.breaks == []
