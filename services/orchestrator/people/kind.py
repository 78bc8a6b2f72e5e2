"""The differences between kinds of gates; a gate's id determines its kind, and `KINDS` in answers.py lists them.

A new kind is a file here with its asking function and its `Kind`, a prefix in ids.py, and a line in `KINDS`.
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
    """An answer to an open gate."""

    run: Run
    gate: Gate
    caller: Identity
    request: agent_pb2.SubmitRequest
    """With the payload in its stored form."""
    payload: str
    tasks: asyncio.TaskGroup

    @property
    def would_be_first(self) -> bool:
        """Whether the answer would be accepted now; another may come first, or the gate may expire."""
        return self.gate.foresee(self.request.request_id, self.caller.user) == "accepted"


@dataclass(frozen=True, slots=True)
class Judgement:
    status: str = "accepted"
    """`accepted` if the answer may be taken, provided it is the first; any other status is returned to the caller."""
    votes_missing: int | None = None
    grant: agent_pb2.GrantMake | None = None
    """Committed together with the answer."""


ACCEPTED = Judgement()


class Kind:
    """Forms, questions and functions of programs: the first payload that fits the schema is the answer."""

    prefix = ids.FRONTEND

    def check(self, payload: str) -> None:
        """Refuse a payload that fits no gate of this kind. Raises InvalidRequest."""

    def hide_secret(self, payload: str) -> str:
        """Return the payload in the form that logs and cassettes may contain."""
        return payload

    def check_fit(self, opened: agent_pb2.GateOpen, payload: str) -> None:
        """Refuse a payload that does not fit this gate. Raises InvalidRequest."""
        check_payload(opened.result_schema, payload)

    async def judge(self, given: Given) -> Judgement:
        """Judge a valid answer from an authorized caller; the gate's `answering` must be held.

        Raises:
            HeadraceError: The reason why it is refused.
        """
        if given.would_be_first:
            given.gate.find_claim(given.caller.user, given.request.holder)
        return ACCEPTED


def check_payload(schema: str, payload: str) -> None:
    """Raise InvalidRequest with the path and the rule if the payload does not match the schema."""
    if not schema:
        return
    validator = compile_schema(schema, mask="it")  # what a person wrote is in no error
    try:
        problem = describe_violations(load_json(payload), validator)
    except (ValueError, RecursionError):
        problem = "$: not valid JSON"
    if problem:
        raise InvalidRequest.of("payload", f"must fit the form's schema: {problem}")
