"""Decides on a call by the tool's patterns, its definition, then the risks; the first match wins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.v1 import common_pb2
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.approvals.rules import RISKS, OnExpiry, Risk, Rules, Then, ToolRule

GROUNDS_MAX = 16
"""Maximum grounds that a grant covers; a call with more is asked about each time."""

IN_THREAD_CHARS = 32 * 1024
"""Arguments longer than this are searched in a thread: all patterns take some 50 ms per megabyte."""


DEFINITION = "the tool's definition"


@dataclass(frozen=True, slots=True)
class Verdict:
    then: Then
    reason: str = ""
    risk: Risk = "low"
    answerers: common_pb2.Answerers | None = None
    """Users who may answer; None: the requester."""
    on_expiry: OnExpiry = "reject"
    """Decision if no one answers in time."""
    grounds: tuple[str, ...] = ()
    """Descriptions of everything that requires the question: the rule, the tool's definition, or each risk found and
    not allowed. Empty if it cannot be granted for later calls."""


async def verdict(rules: Rules, call: Call) -> Verdict:
    if len(call.effective) > IN_THREAD_CHARS:
        return await asyncio.to_thread(_judge, rules, call)
    return _judge(rules, call)


def _judge(rules: Rules, call: Call) -> Verdict:
    assert call.tool is not None, "a call without a tool is refused before"
    try:
        arguments = json.loads(call.effective)
    except (ValueError, RecursionError):
        arguments = call.effective  # refused where arguments are checked
    texts = [*_iterate_strings(arguments), call.effective]
    risks = [found for found in rules.risks if any(map(found[1].matches, texts))]
    risk = risks[0][0] if risks else RISKS[-1]
    answerers = call.tool.answerers if call.tool.HasField("answerers") else rules.answerers
    for rule in rules.tools.get(call.tool.name.casefold(), ()):
        if _does_apply(rule, arguments):
            reason = f"the rules for {call.tool.name}: {rule.label}"
            return Verdict(rule.then, reason, risk, rule.answerers or answerers, rule.on_expiry, (rule.ground,))
    own = call.tool.approval
    if own == "allow" or own == "ask" or own == "deny":
        reason = f"{call.tool.name} is defined with approval {own}"
        return Verdict(own, reason, risk, answerers, grounds=(DEFINITION,))
    if not risks:
        return Verdict("allow", answerers=answerers)
    names = [f"{level} risk: {pattern.label}" for level, pattern in risks]
    asking = tuple(name for (level, _), name in zip(risks, names, strict=True) if rules.actions[level] != "allow")
    grounds = asking if len(asking) <= GROUNDS_MAX else ()
    return Verdict(rules.actions[risk], names[0], risk, answerers, grounds=grounds)


def _does_apply(rule: ToolRule, arguments: Any) -> bool:
    """Return whether the rule matches: every string as a whole if it allows, else a part of any; without a pattern,
    every call."""
    if rule.argument is not None:
        arguments = arguments.get(rule.argument) if isinstance(arguments, dict) else None
    if rule.pattern is None:
        return rule.argument is None or arguments is not None
    allows = rule.then == "allow"
    # What the pattern does not cover, such as a second command after a semicolon, must not run with what it covers.
    matches = [rule.pattern.matches(text, whole=allows) for text in _iterate_strings(arguments)]
    return bool(matches) and (all(matches) if allows else any(matches))


def _iterate_strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            # Half of a surrogate pair, which a model may write as an escape, is no text for the patterns.
            yield value if value.isascii() else value.encode(errors="replace").decode()
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
