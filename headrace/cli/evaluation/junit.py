"""The results as JUnit's XML, which build servers read: a suite for each variant, a test for each run."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from headrace.cli.evaluation.result import Result
from headrace.cli.evaluation.summary import Figures


def write_junit(figures: Sequence[Figures]) -> bytes:
    root = ElementTree.Element("testsuites", name="headrace eval")
    for one in figures:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=one.variant,
            tests=str(len(one.results)),
            failures=str(len(one.results) - one.passed),
        )
        for result in one.results:
            _add_test(suite, result)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _add_test(suite: ElementTree.Element, result: Result) -> None:
    name = f"{result.case} ({result.repetition})"
    seconds = f"{result.latency_ms / 1000:.3f}"
    test = ElementTree.SubElement(suite, "testcase", classname=result.variant, name=name, time=seconds)
    if result.passed:
        return
    problems = [f"{verdict.check}: {verdict.detail}" for verdict in result.verdicts if not verdict.ok]
    if result.state != "completed":
        problems.insert(0, f"the run was {result.state or 'not made'}: {result.error}")
    failure = ElementTree.SubElement(test, "failure", message=_clean(problems[0]))
    failure.text = _clean("\n".join([*problems, "", f"run {result.run_id}", result.answer]))


def _clean(text: str) -> str:
    """Leave out control characters, which XML has not."""
    return "".join(char for char in text if char >= " " or char in "\n\t")
