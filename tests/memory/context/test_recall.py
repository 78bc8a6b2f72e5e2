"""What a model can still know of a long chat whose summaries say nothing: all of it, by looking it up."""

from pathlib import Path

import pytest

from benchmarks.memory.recall import FORGETFUL, mean, measure
from tests.support.memory.summarising import Summariser, summarising


@pytest.mark.parametrize(("messages", "compactions"), [(50, 1), (240, 5)])
async def test_every_planted_fact_is_shown_or_found(tmp_path: Path, messages: int, compactions: int) -> None:
    summariser = Summariser(f"<analysis>hm</analysis>\n<summary>\n{FORGETFUL}\n</summary>")
    async with summarising(tmp_path, summariser) as memory:
        found = await measure(memory.stub, messages)
    assert found.compactions >= compactions
    assert mean(found.reached) == 1
    assert mean(found.shown["goal"] + found.shown["pinned"]) >= 0.95
    assert found.share_shown < 0.5, "the summaries know nothing"
    assert found.spent.cost <= 0.2 * found.tokens_of_everything
    if messages >= 200:
        assert found.spent.tokens <= 0.5 * found.tokens_of_everything
