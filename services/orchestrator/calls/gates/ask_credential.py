"""Asks a person for a credential that a call needs; the call is then executed again with it.

The secret itself is in no answer that is kept: it goes to the run's owner alone (SuppliedCredentials).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator import ids
from services.orchestrator.calls import results
from services.orchestrator.calls.gates.gate import wait_at_gate
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.replay.resume_point import EXPIRED
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms
from services.runtime.telemetry.masking import MASK, SECRET_CHARS_MIN

ASKS_MAX = 5
"""Times that one call asks: a secret that is refused again and again is not the user's slip."""

SECRET_CHARS_MAX = 1900

NOTE_CHARS_MAX = 4000

FAILURE = "CREDENTIAL_MISSING"


class CredentialAnswer(msgspec.Struct, frozen=True):
    decision: Literal["supply", "reject"]
    secret: str = ""
    note: str = ""


def parse_credential(payload: str) -> CredentialAnswer:
    """Parse the payload of a submit. Raises InvalidRequest, which never repeats what was given."""
    try:
        answer = msgspec.json.decode(payload, type=CredentialAnswer)
    except msgspec.DecodeError:
        rule = "must be {decision, secret?, note?} with decision supply or reject"
        raise InvalidRequest.of("payload", rule) from None
    if (answer.decision == "supply") != bool(answer.secret):
        raise InvalidRequest.of("payload.secret", "must be given with decision supply, and absent without it")
    is_plain = answer.secret.isascii() and answer.secret.isprintable() and answer.secret == answer.secret.strip()
    is_long_enough = len(answer.secret) >= SECRET_CHARS_MIN or not answer.secret  # shorter ones could not be masked
    if not is_long_enough or len(answer.secret) > SECRET_CHARS_MAX or not is_plain:
        chars = f"{SECRET_CHARS_MIN} to {SECRET_CHARS_MAX:,}"
        rule = f"must have {chars} visible ASCII characters, and no space around them"
        raise InvalidRequest.of("payload.secret", rule)
    if len(answer.note) > NOTE_CHARS_MAX:
        raise InvalidRequest.of("payload.note", f"must have at most {NOTE_CHARS_MAX} characters")
    return answer


def hide_secret(answer: CredentialAnswer) -> str:
    """Return the payload as it is kept."""
    shown = {"decision": answer.decision} | ({"secret": MASK} if answer.secret else {"note": answer.note})
    return msgspec.json.encode(shown).decode()


async def ask_credential(
    scope: Scope, call: Call, need: common_pb2.CredentialNeed, used: str
) -> tools_pb2.ToolOutcome | None:
    """Ask until somebody supplies it; return the call's outcome where nobody does. `used` is what it was executed
    with."""
    supplied = scope.run.credentials
    supplied.drop(need.name, used)
    with scope.run.waiting():  # for another call that asks for the same
        await supplied.asking[need.name].acquire()
    try:
        if supplied.find(need.name):
            return None
        return await _ask(scope, call, need)
    finally:
        supplied.asking[need.name].release()


async def _ask(scope: Scope, call: Call, need: common_pb2.CredentialNeed) -> tools_pb2.ToolOutcome | None:
    run = scope.run
    closed = {close.gate_id: close.state for close in run.recording.find_payloads("gate_close")}
    for number in range(1, ASKS_MAX + 1):
        gate = _make_gate(scope, call, need, number)
        if closed.get(gate.gate_id) == EXPIRED:
            return _make_refusal(need, "nobody answered in time")
        if gate.gate_id in closed or run.waits.is_closed(gate.gate_id):
            submission = await run.waits.wait(gate.gate_id, 0)
        else:
            end = await wait_at_gate(scope, gate, call)
            submission = end.submission
            if end.closing:
                await scope.record(*end.closing)
        if (problem := _find_refusal(submission)) is not None:
            return _make_refusal(need, problem)
        if run.credentials.find(need.name):
            return None
        # It was supplied to an owner of the run that has gone, or was refused since.
    return _make_refusal(need, f"it was asked for {ASKS_MAX} times")


def _find_refusal(submission: Submission | None) -> str | None:
    if submission is None:
        return "nobody answered in time"
    answer = msgspec.json.decode(submission.payload, type=CredentialAnswer)
    return None if answer.decision == "supply" else answer.note or "the user does not supply it"


def _make_refusal(need: common_pb2.CredentialNeed, why: str) -> tools_pb2.ToolOutcome:
    return results.make_failure(FAILURE, f"the tool did not run: it needs the credential {need.name!r}: {why}")


def _make_gate(scope: Scope, call: Call, need: common_pb2.CredentialNeed, number: int) -> agent_pb2.GateOpen:
    return agent_pb2.GateOpen(
        gate_id=ids.credential_id(scope.run.id, call.tool_id, number),
        kind="credential",
        agent_key=scope.agent.key,
        tool_id=call.tool_id,
        tool_name=call.name,
        reason=f"{need.name} is {need.problem}: {need.description}",
        expires_at=now_ms() + scope.run.rules.answer_timeout_ms,
        answerers=need.answerers if need.HasField("answerers") else None,
        need=need,
    )
