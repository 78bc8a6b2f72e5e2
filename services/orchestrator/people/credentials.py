"""Asks a person for a credential that a call needs; the call is then executed again with it.

The secret itself is never stored in an answer: only the run's owner holds it (SuppliedCredentials).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator import ids
from services.orchestrator.people.asking import ask
from services.orchestrator.people.kind import Given, Judgement, Kind
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope
from services.runtime.telemetry.masking import MASK, SECRET_CHARS_MIN

ASKS_MAX = 5
"""Requests per call; a secret that is refused this often is not a typing error."""

SECRET_CHARS_MAX = 1900

NOTE_CHARS_MAX = 4000


class CredentialAnswer(msgspec.Struct, frozen=True):
    decision: Literal["supply", "reject"]
    secret: str = ""
    note: str = ""


def parse_credential(payload: str) -> CredentialAnswer:
    """Parse the payload of a submit. Raises InvalidRequest, which never repeats the payload."""
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


class CredentialKind(Kind):
    """The log records that a secret was supplied; the run holds the secret itself."""

    prefix = ids.CREDENTIAL

    def check(self, payload: str) -> None:
        parse_credential(payload)

    def hide_secret(self, payload: str) -> str:
        answer = parse_credential(payload)
        shown = {"decision": answer.decision} | ({"secret": MASK} if answer.secret else {"note": answer.note})
        return msgspec.json.encode(shown).decode()

    async def judge(self, given: Given) -> Judgement:
        judged = await super().judge(given)
        if given.would_be_first and (secret := parse_credential(given.payload).secret):
            # Stored before the answer is given, so that tasks that wait for the answer find it.
            given.run.credentials.keep(given.gate.opened.need.name, secret)
        return judged


async def ask_credential(scope: Scope, call: Call, need: common_pb2.CredentialNeed, used: str) -> str | None:
    """Ask until a person supplies the credential; return the reason why the call does not run, or None.

    `used` is the value with which the call was executed.
    """
    supplied = scope.run.credentials
    supplied.drop(need.name, used)
    with scope.run.waiting():  # for another call that asks for the same
        await supplied.asking[need.name].acquire()
    try:
        return None if supplied.find(need.name) else await _ask(scope, call, need)
    finally:
        supplied.asking[need.name].release()


async def _ask(scope: Scope, call: Call, need: common_pb2.CredentialNeed) -> str | None:
    for number in range(1, ASKS_MAX + 1):
        opening = agent_pb2.GateOpen(
            gate_id=ids.credential_id(scope.run.id, call.tool_id, number),
            kind="credential",
            reason=f"{need.name} is {need.problem}: {need.description}",
            answerers=need.answerers if need.HasField("answerers") else None,
            need=need,
        )
        submission = await ask(scope, call, opening)
        if submission is None:
            return "nobody answered in time"
        answer = msgspec.json.decode(submission.payload, type=CredentialAnswer)
        if answer.decision == "reject":
            return answer.note or "the user does not supply it"
        if scope.run.credentials.find(need.name):
            return None
        # It was supplied to an owner of the run that has gone, or was refused since.
    return f"it was asked for {ASKS_MAX} times"
