"""Judges a call with the arguments that a person gave it, as one of the model is judged: by schema and rules."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import InvalidRequest
from services.orchestrator.run.answers.call import Call, find_violation
from services.orchestrator.run.approvals.rules import Rules
from services.orchestrator.run.approvals.verdict import Verdict, verdict

FIELD = "payload.arguments"


async def judge_edit(rules: Rules, call: Call, edited: str) -> Verdict:
    """Return what the rules say of `call` with the arguments `edited`, which may be that others must answer.

    Raises:
        InvalidRequest: The tool's schema or a rule refuses them.
    """
    changed = replace(call, params=edited)
    if problem := find_violation(changed):
        path, rule = problem
        raise InvalidRequest.of(FIELD + path, f"the schema of {call.name} refuses it: {rule}")
    found = await verdict(rules, changed)
    if found.then == "deny":
        raise InvalidRequest.of(FIELD, f"not allowed here: {found.reason}")
    return found
