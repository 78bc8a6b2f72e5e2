"""Statistics of each variant: the terminal's table, confidence intervals, and comparison with the thresholds.

The pass rate has the score interval of E. B. Wilson, "Probable inference, the law of succession, and
statistical inference", JASA 22 (1927), which is valid for few runs and for rates near 0 and 1. The difference
of two variants has a percentile interval of the paired bootstrap over cases (B. Efron and R. J. Tibshirani, "An
Introduction to the Bootstrap", 1993): it resamples cases together with both variants' results, so that hard
cases are hard for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean, quantiles

from headrace.cli.evaluation.result import Result
from headrace.cli.evaluation.suite import Suite

Z = 1.959963984540054
"""Normal quantile for 95 %."""

DRAWS = 2000

SEED = 1
"""Fixed seed, so that equal results give equal intervals."""


def find_wilson_interval(passed: int, runs: int) -> tuple[float, float]:
    """Return the 95 % interval of a pass rate."""
    if not runs:
        return 0.0, 1.0
    share = passed / runs
    middle = share + Z * Z / (2 * runs)
    half = Z * math.sqrt(share * (1 - share) / runs + Z * Z / (4 * runs * runs))
    below = 1 + Z * Z / runs
    return max(0.0, (middle - half) / below), min(1.0, (middle + half) / below)


def find_difference(one: Sequence[Result], other: Sequence[Result]) -> tuple[float, float, float] | None:
    """Return the pass rate of `other` minus that of `one`, and its 95 % interval; None if no case has results
    of both.
    """
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


HEAD = ("agent", "passed", "95 %", "steps", "tokens", "cost", "first delta", "latency")


@dataclass(frozen=True, slots=True)
class Figures:
    variant: str
    results: Sequence[Result]

    @property
    def passed(self) -> int:
        return sum(result.passed for result in self.results)

    @property
    def share(self) -> float:
        return self.passed / len(self.results) if self.results else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return find_wilson_interval(self.passed, len(self.results))

    @property
    def cost_usd(self) -> float | None:
        known = [result.cost_usd for result in self.results if result.cost_usd is not None]
        return sum(known) if known else None

    @property
    def cells(self) -> list[str]:
        low, high = self.interval
        firsts = [result.first_delta_ms for result in self.results if result.first_delta_ms is not None]
        return [
            self.variant,
            f"{self.passed}/{len(self.results)}",
            f"{low:.0%}–{high:.0%}",
            _format(find_median([result.steps for result in self.results]), "{:g}"),
            _format(find_median([result.input_tokens + result.output_tokens for result in self.results]), "{:,.0f}"),
            _format(self.cost_usd, "${:.4f}"),
            _format(find_median(firsts), "{:.0f} ms"),
            _format(find_median([result.latency_ms for result in self.results]), "{:.0f} ms"),
        ]


def sum_up(suite: Suite, results: Sequence[Result]) -> list[Figures]:
    return [
        Figures(variant.name, [result for result in results if result.variant == variant.name])
        for variant in suite.variants
    ]


def describe_differences(figures: Sequence[Figures]) -> Iterator[str]:
    """Compare each variant with the first one."""
    for other in figures[1:]:
        found = find_difference(figures[0].results, other.results)
        if found is not None:
            much, low, high = found
            sure = "" if low <= 0 <= high else ", which chance alone hardly makes"
            yield f"{other.variant} against {figures[0].variant}: {much:+.0%} (95 %: {low:+.0%} to {high:+.0%}){sure}"


def find_shortfalls(suite: Suite, figures: Sequence[Figures], planned: int) -> list[str]:
    """Return a sentence for each threshold of the suite that is missed."""
    wanted = suite.thresholds
    short = [
        f"{one.variant}: {one.share:.0%} of the runs have passed, {wanted.pass_rate:.0%} are wanted"
        for one in figures
        if one.share < wanted.pass_rate
    ]
    dear = wanted.cost_usd_max
    if dear is not None:
        short += [
            f"{one.variant}: the runs cost ${one.cost_usd:.4f}, ${dear:.4f} are allowed"
            for one in figures
            if one.cost_usd is not None and one.cost_usd > dear
        ]
    done = sum(len(one.results) for one in figures)
    if done < planned:
        short.append(f"{planned - done} of {planned} runs were not made: budgetUsd is spent")
    return short


def _format(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
