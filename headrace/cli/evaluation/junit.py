"""The results as JUnit's XML, which build servers read: a suite for each variant, a test for each run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from headrace.cli.evaluation.result import Result
from headrace.cli.evaluation.summary import Figures
from headrace.run_states import State

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
    """Leave out control characters, halves of surrogate pairs and the two others that XML 1.0 has not (2.2)."""
    return _NO_CHARACTERS.sub("", text)
