"""Asks a person to approve a call; without an answer in time it is rejected. votes.py judges the answers."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from headrace.errors import InvalidRequest
from headrace.shown_text import SHOWN_CHARS_MAX, make_visible
from headrace.v1 import agent_pb2
from services.orchestrator import ids
from services.orchestrator.people.asking import wait_at_gate
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.approvals.verdict import Verdict
from services.orchestrator.run.control.gates import Gate
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms

PERMISSION = "1"
"""The question of whether a call may run."""

NOTE_CHARS_MAX = 4000

BY_CHARS_MAX = 200

GRANT_MS, GRANT_MS_MIN, GRANT_MS_MAX = 8 * 3_600_000, 60_000, 30 * 86_400_000
"""Default, minimum and maximum duration of a grant for the chat."""


class ApprovalAnswer(msgspec.Struct, frozen=True):
    decision: Literal["approve", "edit", "reject"]
    edited: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="arguments")
    arguments_sha256: str | None = msgspec.field(default=None, name="argumentsSha256")
    """SHA-256 of the arguments that are approved, in hexadecimal."""
    note: str = ""
    grant: Literal["", "run", "chat"] = ""
    """Scope of a grant for later calls; empty for none."""
    granted_ms: int | None = msgspec.field(default=None, name="grantMs")
    by: str = ""
    """A name given by the caller of Submit; only a remark, because the log has the authenticated user."""

    @property
    def arguments(self) -> str:
        """Changed arguments as JSON text; empty for the call's own."""
        return bytes(self.edited).decode()

    @property
    def grant_ms(self) -> int:
        """Duration of a grant for the chat, in milliseconds."""
        return GRANT_MS if self.granted_ms is None else self.granted_ms


def parse_answer(payload: str) -> ApprovalAnswer:
    """Parse the payload of a submit. Raises InvalidRequest."""
    try:
        answer = msgspec.json.decode(payload, type=ApprovalAnswer)
    except msgspec.DecodeError:
        fields = "{decision, arguments?, argumentsSha256?, note?, by?, grant?, grantMs?}"
        rule = f"must be {fields} with decision approve, edit or reject, and grant run or chat"
        raise InvalidRequest.of("payload", rule) from None
    is_object = answer.arguments.startswith("{")
    if (answer.decision == "edit") != is_object:
        raise InvalidRequest.of("payload.arguments", "must be an object with decision edit, and absent without it")
    if len(answer.note) > NOTE_CHARS_MAX:
        raise InvalidRequest.of("payload.note", f"must have at most {NOTE_CHARS_MAX} characters")
    if len(answer.by) > BY_CHARS_MAX:
        raise InvalidRequest.of("payload.by", f"must have at most {BY_CHARS_MAX} characters")
    _check_grant(answer)
    return answer


def _check_grant(answer: ApprovalAnswer) -> None:
    if answer.grant and answer.decision != "approve":
        raise InvalidRequest.of("payload.grant", "goes with decision approve alone")
    if answer.granted_ms is None:
        return
    if answer.grant != "chat":
        raise InvalidRequest.of("payload.grantMs", "goes with grant chat alone")
    if not GRANT_MS_MIN <= answer.granted_ms <= GRANT_MS_MAX:
        raise InvalidRequest.of("payload.grantMs", f"must be {GRANT_MS_MIN:,} to {GRANT_MS_MAX:,}")


def has_asked(scope: Scope, call: Call, question: str) -> bool:
    """Return whether an earlier owner of the run asked this. Its question stays open, even if rules have changed."""
    return _find_asked(scope, ids.approval_id(scope.run.id, call.tool_id, question)) is not None


def _find_asked(scope: Scope, approval_id: str) -> agent_pb2.ApprovalAsk | None:
    asked = scope.run.restored.find_payloads("approval_ask")
    return next((ask for ask in asked if ask.approval_id == approval_id), None)


async def ask_person(scope: Scope, call: Call, found: Verdict, question: str = PERMISSION) -> ApprovalAnswer:
    """Ask a person to approve the call; `question` distinguishes several questions about it."""
    run = scope.run
    # Derived, so that an owner that takes the run over waits at the same gate, for the time left.
    approval_id = ids.approval_id(run.id, call.tool_id, question)
    reason, arguments_chars = make_visible(found.reason), len(call.effective)
    timeout_ms = run.answer_timeout_ms
    asked = _find_asked(scope, approval_id)
    expires_at = asked.expires_at if asked is not None else now_ms() + timeout_ms
    opening = agent_pb2.GateOpen(
        gate_id=approval_id,
        kind="approval",
        risk=found.risk,
        reason=reason,
        expires_at=expires_at,
        answerers=found.answerers,
        on_expiry="approve" if found.on_expiry == "approve" else None,
        grounds=found.grounds,
        arguments_chars=arguments_chars if arguments_chars > SHOWN_CHARS_MAX else None,
    )
    ask = asked or agent_pb2.ApprovalAsk(
        approval_id=approval_id, tool_id=call.tool_id, reason=reason, risk=found.risk, expires_at=expires_at
    )
    submission, closing = await wait_at_gate(scope, call, opening, ask)
    gate, nobody = run.gates.get(approval_id), f"nobody answered within {timeout_ms / 1000:g} s"
    if submission is not None:
        answer = _add_votes(gate, parse_answer(submission.payload))
    elif gate.opened.on_expiry == "approve" and not gate.votes:
        answer, nobody = ApprovalAnswer("approve"), f"{nobody}, and the rule approves then"
    else:
        answer = ApprovalAnswer("reject", note=nobody)
    event = agent_pb2.ApprovalAnswer(
        approval_id=approval_id,
        decision=answer.decision,
        by=submission.by or None if submission else None,
        note=(answer.note if submission else nobody) or None,
        credential=submission.credential or None if submission else None,
    )
    # A sub-agent that ended here would leave its gate open, and an answer that was accepted without effect.
    await scope.record(*closing, event, is_patient=True)
    return answer


def _add_votes(gate: Gate, answer: ApprovalAnswer) -> ApprovalAnswer:
    """Return the last of several answers, combined with earlier ones' changed arguments and notes to the model."""
    if answer.decision == "reject" or not (votes := gate.votes):
        return answer
    note = "; ".join(filter(None, [*(vote.note for vote in votes), answer.note]))
    if answer.decision == "approve" and gate.arguments:
        return replace(answer, decision="edit", edited=msgspec.Raw(gate.arguments.encode()), note=note)
    return replace(answer, note=note)
