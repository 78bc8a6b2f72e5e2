"""The fuzz targets hold for their seeds, with which `python -m trials fuzz` starts.

Bugs that it once found stay fixed.
"""

from importlib import import_module
from pathlib import Path

import pytest

SEEDS = sorted(path for path in (Path(__file__).parents[2] / "trials" / "fuzz" / "seeds").glob("*/*"))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}/{seed.name}")
def test_a_fuzz_target_holds_for_its_seed(seed: Path) -> None:
    import_module(f"trials.fuzz.{seed.parent.name}").check(seed.read_bytes())


def test_every_target_has_seeds() -> None:
    assert {seed.parent.name for seed in SEEDS} == {"sse", "log_lines", "triple_quotes", "templates", "http2"}
