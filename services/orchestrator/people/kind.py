"""How kinds of gates differ. A gate's kind is known by its id; `KINDS` in answers.py has them all.

A new kind is a file here with the call that asks and its `Kind`, a prefix in ids.py, and a line in `KINDS`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.orchestrator import ids
from services.orchestrator.run.control.gates import Gate
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity
from services.runtime.formats.json_schema import compile_schema, describe_violations, load_json


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that somebody gives to an open gate."""

    run: Run
    gate: Gate
    caller: Identity
    request: agent_pb2.SubmitRequest
    """With the payload as it is kept."""
    payload: str
    tasks: asyncio.TaskGroup

    @property
    def would_be_first(self) -> bool:
        """Whether it would be taken now; another may be meanwhile, or the gate's time end."""
        return self.gate.foresee(self.request.request_id, self.caller.user) == "accepted"


@dataclass(frozen=True, slots=True)
class Judgement:
    status: str = "accepted"
    """Accepted: the answer may be taken, if it is the first. Any other is the status that the caller is told."""
    votes_missing: int | None = None
    grant: agent_pb2.GrantMake | None = None
    """Committed together with the answer."""


ACCEPTED = Judgement()


class Kind:
    """Forms, questions and functions of programs: the first payload that fits the schema is the answer."""

    prefix = ids.FRONTEND

    def check(self, payload: str) -> None:
        """Refuse what answers no gate of this kind. Raises InvalidRequest."""

    def hide_secret(self, payload: str) -> str:
        """Return the payload as logs and cassettes may have it."""
        return payload

    def check_fit(self, opened: agent_pb2.GateOpen, payload: str) -> None:
        """Refuse what does not answer this gate. Raises InvalidRequest."""
        check_payload(opened.result_schema, payload)

    async def judge(self, given: Given) -> Judgement:
        """Judge an answer that fits, of a caller who may answer; the caller holds the gate's `answering`.

        Raises:
            HeadraceError: Why it is refused.
        """
        if given.would_be_first:
            given.gate.find_claim(given.caller.user, given.request.holder)
        return ACCEPTED


def check_payload(schema: str, payload: str) -> None:
    """Raise InvalidRequest with the path and the rule where the payload of a submit does not fit."""
    if not schema:
        return
    validator = compile_schema(schema, mask="it")  # what a person wrote is in no error
    try:
        problem = describe_violations(load_json(payload), validator)
    except (ValueError, RecursionError):
        problem = "$: not valid JSON"
    if problem:
        raise InvalidRequest.of("payload", f"must fit the form's schema: {problem}")
