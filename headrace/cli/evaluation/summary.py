"""The results of each variant in figures, the table of the terminal, and whether they are good enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.cli.evaluation.result import Result
from headrace.cli.evaluation.statistics import find_difference, find_median, find_wilson_interval
from headrace.cli.evaluation.suite import Suite

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
    """Compare each variant with the first."""
    for other in figures[1:]:
        found = find_difference(figures[0].results, other.results)
        if found is not None:
            much, low, high = found
            sure = "" if low <= 0 <= high else ", which chance alone hardly makes"
            yield f"{other.variant} against {figures[0].variant}: {much:+.0%} (95 %: {low:+.0%} to {high:+.0%}){sure}"


def find_shortfalls(suite: Suite, figures: Sequence[Figures], planned: int) -> list[str]:
    """Say what is below the suite's thresholds."""
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
