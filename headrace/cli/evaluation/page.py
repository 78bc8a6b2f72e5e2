"""Reports of an evaluation: a self-contained HTML page, and JUnit XML for build servers."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from headrace.cli.evaluation.result import Result, Verdict
from headrace.cli.evaluation.suite import Suite
from headrace.cli.evaluation.summary import HEAD, Figures, describe_differences
from headrace.run_states import State

STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { max-width: 80rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { border: 1px solid #8886; padding: .35rem .5rem; text-align: left; vertical-align: top }
th { font-weight: 600 }
.ok { color: #197b30 }
.no { color: #c0271a }
.more { color: #777 }
pre { white-space: pre-wrap; margin: 0; font: 13px/1.4 ui-monospace, monospace }
.bar { background: #4a7bd0; height: .5rem; min-width: 1px }
summary { cursor: pointer }
ins { background: #2a92; text-decoration: none }
del { background: #d332 }
@media (prefers-color-scheme: dark) { .ok { color: #6bd384 } .no { color: #ff8a80 } }
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy that keeps answers from loading or running anything."""


def write_page(name: str, suite: Suite, figures: Sequence[Figures], shortfalls: Sequence[str]) -> str:
    return "".join(_write(name, suite, figures, shortfalls))


def _write(name: str, suite: Suite, figures: Sequence[Figures], shortfalls: Sequence[str]) -> Iterator[str]:
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(name)}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style><h1>{_safe(name)}</h1>'
    for problem in shortfalls:
        yield f'<p class="no">{_safe(problem)}</p>'
    yield f"<table><tr>{''.join(f'<th>{_safe(cell)}</th>' for cell in HEAD)}</tr>"
    for one in figures:
        yield f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in one.cells)}</tr>"
    yield "</table>"
    for line in describe_differences(figures):
        yield f"<p>{_safe(line)}</p>"
    yield from _write_bars(
        "Cost of each agent's runs", "${:.4f}", [(one.variant, one.cost_usd or 0.0) for one in figures]
    )
    means = [(one.variant, _mean([result.latency_ms for result in one.results])) for one in figures]
    yield from _write_bars("Mean latency", "{:.0f} ms", means)
    for case in suite.cases:
        yield from _write_case(case.name, case.message, figures)
    yield "</html>"


def _write_bars(title: str, form: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    most = max((value for _, value in values), default=0.0) or 1.0
    yield f"<h2>{_safe(title)}</h2><table>"
    for name, value in values:
        bar = f'<div class="bar" style="width:{value / most * 100:.1f}%"></div>'
        yield f"<tr><td>{_safe(name)}</td><td>{form.format(value)}</td><td width=60%>{bar}</td></tr>"
    yield "</table>"


def _write_case(case: str, message: str, figures: Sequence[Figures]) -> Iterator[str]:
    yield f"<h2>{_safe(case)}</h2><pre>{_safe(message)}</pre><table><tr>"
    columns = [[result for result in one.results if result.case == case] for one in figures]
    for one, results in zip(figures, columns, strict=True):
        passed = sum(result.passed for result in results)
        yield f"<th>{_safe(one.variant)} {passed}/{len(results)}</th>"
    yield "</tr><tr>"
    for results in columns:
        yield "<td>"
        for result in results:
            yield from _write_result(result)
        yield "</td>"
    yield "</tr></table>"
    if len(columns) == 2 and all(columns):
        diff = _write_diff(columns[0][0].answer, columns[1][0].answer)
        yield f"<details><summary>Difference of the first answers</summary><pre>{diff}</pre></details>"


def _write_result(result: Result) -> Iterator[str]:
    mark, sign = ("ok", "✓") if result.passed else ("no", "✗")
    cost = "" if result.cost_usd is None else f", ${result.cost_usd:.4f}"
    summary = f"{result.steps} steps, {result.latency_ms:.0f} ms{cost}"
    yield f'<details open><summary><span class="{mark}">{sign}</span> {result.repetition}: {summary}</summary>'
    if result.error:
        yield f'<p class="no">{_safe(result.error)}</p>'
    for call in result.calls:
        yield f'<pre class="more">{_safe(f"{call.name}({call.arguments}) -> {call.result[:300]}")}</pre>'
    yield f"<pre>{_safe(result.answer)}</pre>"
    for verdict in result.verdicts:
        yield from _write_verdict(verdict)
    yield f'<p class="more">run {_safe(result.run_id)}</p></details>'


def _write_verdict(verdict: Verdict) -> Iterator[str]:
    mark, sign = ("ok", "✓") if verdict.ok else ("no", "✗")
    score = "" if verdict.score is None else f" {verdict.score} of 5"
    yield f'<p><span class="{mark}">{sign}</span> {_safe(verdict.check)}{score} {_safe(verdict.detail)}</p>'
    if verdict.prompt:
        yield f"<details><summary>What the judge was asked</summary><pre>{_safe(verdict.prompt)}</pre></details>"


def _write_diff(one: str, other: str) -> str:
    words = difflib.SequenceMatcher(None, left := one.split(" "), right := other.split(" "), autojunk=False)
    parts: list[str] = []
    for kind, start, end, begin, stop in words.get_opcodes():
        gone, new = _safe(" ".join(left[start:end])), _safe(" ".join(right[begin:stop]))
        if kind == "equal":
            parts.append(gone)
        else:
            parts += [f"<del>{gone}</del>"] * bool(gone) + [f"<ins>{new}</ins>"] * bool(new)
    return " ".join(parts)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _safe(text: str) -> str:
    return html.escape(text)


_NO_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(figures: Sequence[Figures]) -> bytes:
    root = ElementTree.Element("testsuites", name="headrace eval")
    for one in figures:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(one.variant),
            tests=str(len(one.results)),
            failures=str(len(one.results) - one.passed),
        )
        for result in one.results:
            _add_test(suite, result)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _add_test(suite: ElementTree.Element, result: Result) -> None:
    name = _clean(f"{result.case} ({result.repetition})")
    seconds = f"{result.latency_ms / 1000:.3f}"
    test = ElementTree.SubElement(suite, "testcase", classname=_clean(result.variant), name=name, time=seconds)
    if result.passed:
        return
    problems = [f"{verdict.check}: {verdict.detail}" for verdict in result.verdicts if not verdict.ok]
    if result.state != State.COMPLETED:
        problems.insert(0, f"the run was {result.state or 'not made'}: {result.error}")
    failure = ElementTree.SubElement(test, "failure", message=_clean(problems[0]))
    failure.text = _clean("\n".join([*problems, "", f"run {result.run_id}", result.answer]))


def _clean(text: str) -> str:
    """Remove characters that XML 1.0 forbids (section 2.2): control characters, lone surrogates, U+FFFE and
    U+FFFF.
    """
    return _NO_CHARACTERS.sub("", text)
