"""How sure the figures of an evaluation are.

A share of runs has the score interval of E. B. Wilson, "Probable inference, the law of succession, and statistical
inference", JASA 22 (1927): it holds for few runs and for shares near 0 and 1. The difference of two variants has a
percentile interval of the paired bootstrap over cases (B. Efron and R. J. Tibshirani, "An Introduction to the
Bootstrap", 1993): cases are drawn again with what both variants did of them, so that hard cases are hard for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import mean, quantiles

from headrace.cli.evaluation.result import Result

Z = 1.959963984540054
"""For 95 %."""

DRAWS = 2000

SEED = 1
"""The same results give the same interval."""


def find_wilson_interval(passed: int, runs: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if not runs:
        return 0.0, 1.0
    share = passed / runs
    middle = share + Z * Z / (2 * runs)
    half = Z * math.sqrt(share * (1 - share) / runs + Z * Z / (4 * runs * runs))
    below = 1 + Z * Z / runs
    return max(0.0, (middle - half) / below), min(1.0, (middle + half) / below)


def find_difference(one: Sequence[Result], other: Sequence[Result]) -> tuple[float, float, float] | None:
    """Return by how much `other` passes more often, and the 95 % interval; None where no case has both."""
    first, second = _share_by_case(one), _share_by_case(other)
    pairs = [second[case] - first[case] for case in first if case in second]
    if not pairs:
        return None
    random = Random(SEED)
    draws = sorted(mean(random.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    return mean(pairs), draws[round(0.025 * (DRAWS - 1))], draws[round(0.975 * (DRAWS - 1))]


def find_median(values: Sequence[float]) -> float | None:
    return quantiles(values, n=2)[0] if len(values) > 1 else (values[0] if values else None)


def _share_by_case(results: Sequence[Result]) -> dict[str, float]:
    by_case: dict[str, list[bool]] = {}
    for result in results:
        by_case.setdefault(result.case, []).append(result.passed)
    return {case: mean(passed) for case, passed in by_case.items()}
