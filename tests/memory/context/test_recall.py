"""What a model can still recall of a long chat whose summaries contain nothing: all of it, by looking it up."""

from pathlib import Path

import pytest

from benchmarks.memory.recall import FORGETFUL, mean, measure
from tests.support.memory.summarising import Summariser, summarising


@pytest.mark.parametrize(("messages", "compactions"), [(50, 1), (240, 5)])
async def test_every_planted_fact_is_shown_or_found(tmp_path: Path, messages: int, compactions: int) -> None:
    summariser = Summariser(f"<analysis>hm</analysis>\n<summary>\n{FORGETFUL}\n</summary>")
    async with summarising(tmp_path, summariser) as memory:
        measurement = await measure(memory.stub, messages)
    assert measurement.compactions >= compactions
    assert mean(measurement.reached) == 1
    assert mean(measurement.shown["goal"] + measurement.shown["pinned"]) >= 0.95
    assert measurement.share_shown < 0.5, "the summaries know nothing"
    assert measurement.spent.cost <= 0.2 * measurement.tokens_of_everything
    if messages >= 200:
        assert measurement.spent.tokens <= 0.5 * measurement.tokens_of_everything
