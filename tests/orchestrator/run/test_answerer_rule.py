"""Rules of who may answer that nobody could satisfy are refused when the file is read."""

from __future__ import annotations

import pytest

from services.orchestrator.run.approvals.rules import RulesError, parse

UNREACHABLE = {
    '{anyOf: ["user:ada"], count: 2}': "2 users must approve, and anyOf names 1",
    "{count: 2}": "2 users must approve, and anyOf names 1",
    '{anyOf: ["requester", "user:ada"], notRequester: true, count: 2}': "2 users must approve",
    '{anyOf: ["tenant"], count: 0}': "greater than or equal to 1",
    '{anyOf: ["tenant"], count: 17}': "less than or equal to 16",
    "{remindAfterMs: 0}": "greater than or equal to 1",
    "{escalateAfterMs: 1000}": "given together",
    '{escalateTo: ["user:ada"]}': "given together",
    '{escalateAfterMs: 1000, escalateTo: ["tenant"]}': "should match pattern",
}


@pytest.mark.parametrize("rule", UNREACHABLE)
def test_what_cannot_be_is_refused(rule: str) -> None:
    with pytest.raises(RulesError, match=UNREACHABLE[rule]):
        parse(f"answerers: {rule}".encode())


@pytest.mark.parametrize(
    "rule",
    ["{notRequester: true, count: 3}", '{anyOf: ["role:a"], count: 2}', '{anyOf: ["user:a", "user:b"], count: 2}'],
)
def test_a_count_that_can_be_reached_is_kept(rule: str) -> None:
    answerers = parse(f"answerers: {rule}".encode()).answerers
    assert answerers is not None
    assert answerers.count in (2, 3)
