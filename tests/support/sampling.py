"""How much of a long series a test tries: a fifth of it in the check, three places at most; all of it by night."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import pytest

PLACES_MAX = 3

Take: TypeAlias = Callable[[Sequence[int], str | int], list[int]]
"""Takes places from a series; which ones is decided by a seed, the case's own, so that cases differ in them."""


def take_some(series: Sequence[int], seed: str | int) -> list[int]:
    """A fifth of the series, at least one place; the same ones in each run."""
    return sorted(random.Random(seed).sample(series, min(PLACES_MAX, -(-len(series) // 5))))


def take_all(series: Sequence[int], seed: str | int) -> list[int]:
    return [*series]


at_places = pytest.mark.parametrize(
    "take", [take_some, pytest.param(take_all, marks=pytest.mark.nightly)], ids=["some", "all"]
)


def rest_by_night(cases: Iterable[Any], *, each: int) -> list[Any]:
    """The cases, of which the check tries each second, third and so on, and the night the others."""
    return [
        (pytest.param(*case) if index % each == 0 else pytest.param(*case, marks=pytest.mark.nightly))
        for index, case in enumerate(cases)
    ]
