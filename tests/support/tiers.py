"""Which test cases run in the check, and which only in the nightly."""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

PLACES_MAX = 3

Take: TypeAlias = Callable[[Sequence[int], str | int], list[int]]
"""Takes places from a series; which ones is decided by a seed, the case's own, so that cases differ in them."""


def take_some(series: Sequence[int], seed: str | int) -> list[int]:
    """Return a fifth of the series, at least one and at most PLACES_MAX; the same ones in each run."""
    return sorted(random.Random(seed).sample(series, min(PLACES_MAX, -(-len(series) // 5))))


def take_all(series: Sequence[int], seed: str | int) -> list[int]:
    return [*series]


at_places = pytest.mark.parametrize(
    "take", [take_some, pytest.param(take_all, marks=pytest.mark.nightly)], ids=["some", "all"]
)


def examples(nightly: int) -> int:
    """Return the number of slow examples to try: `nightly` in the nightly, and three in the check."""
    return nightly if settings.get_current_profile_name() == "nightly" else 3


def check_each(cases: Iterable[Any], each: int) -> list[Any]:
    """Return parameters of which the check runs every `each`-th, starting with the first."""
    return _leave(cases, lambda index, _: index % each == 0)


def check_first(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return parameters of which the check runs the first `count`."""
    return _leave(cases, lambda index, _: index < count)


def check_only(cases: Iterable[tuple[Any, ...]], kept: Collection[tuple[Any, ...]]) -> list[Any]:
    """Return parameters of which the check runs those in `kept`, each of which must be a case."""
    every = [*cases]
    assert set(kept) <= {*every}, set(kept) - {*every}
    return _leave(every, lambda _, case: case in kept)


def _leave(cases: Iterable[Any], is_checked: Callable[[int, Any], bool]) -> list[Any]:
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if is_checked(index, case) else pytest.mark.nightly,
        )
        for index, case in enumerate(cases)
    ]
