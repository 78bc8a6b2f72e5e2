"""Calls cut off by the loss of the tools service: their effect decides whether they run again.

A `once` tool never runs twice without a person's decision.
"""

from __future__ import annotations

import asyncio
import hashlib

import grpc
import orjson
import structlog

from headrace.errors import HeadraceError, Overloaded, ProviderUnavailable
from headrace.v1 import tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.calls.gates import ask_person
from services.orchestrator.peers.stubs import TOOLS_BACK_S, Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.approvals.verdict import Verdict, verdict
from services.orchestrator.run.scope import Scope

DELAY_S, DELAY_S_MAX = 0.1, 2.0

UNKNOWN_CHECKS_MAX = 3
"""An unknown outcome is checked again, because a tool that was cut off may still be stopping."""

GONE = "the tools service is away and did not come back in time"

log = structlog.get_logger()


class RetryWindow:
    def __init__(self, timeout_s: float) -> None:
        self._until = asyncio.get_running_loop().time() + min(timeout_s, TOOLS_BACK_S)
        self._delay_s = DELAY_S

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def pause(self) -> bool:
        """Wait before another attempt; return False when no time is left for one."""
        if asyncio.get_running_loop().time() + self._delay_s > self._until:
            return False
        await asyncio.sleep(self._delay_s)
        self._delay_s = min(2 * self._delay_s, DELAY_S_MAX)
        return True


def make_effect_key(run_id: str, call: Call) -> str:
    try:
        canonical = orjson.dumps(orjson.loads(call.effective), option=orjson.OPT_SORT_KEYS)
    except ValueError:
        canonical = call.effective.encode()
    return f"{run_id}/{call.call_id}/{hashlib.sha256(canonical).hexdigest()[:32]}"


async def resolve_break(
    scope: Scope, peers: Peers, call: Call, key: str, patience: RetryWindow
) -> tools_pb2.ToolOutcome | str:
    """Return the call's result, or the effect key with which it is to run again."""
    log.warning("tool stream broke", run_id=scope.run.id, tool=call.name)
    if ask_person.has_asked(scope, call, _name_question(call)):
        return await _resolve_unknown(scope, call, key)
    if call.tool is not None and call.tool.effect in ("read", "idempotent"):
        if await patience.pause():
            return key
        return outcomes.make_failure(ProviderUnavailable.reason, GONE)
    checked = await _check_effect(scope, peers, call, key, patience)
    if checked.state == "not_done":
        return key
    if checked.state == "done" and checked.HasField("result"):
        return checked.result
    return await _resolve_unknown(scope, call, key)


async def _check_effect(
    scope: Scope, peers: Peers, call: Call, key: str, patience: RetryWindow
) -> tools_pb2.CheckEffectResponse:
    request = tools_pb2.CheckEffectRequest(effect_key=key, tool_name=call.name, chat_id=scope.run.chat_id)
    reply = tools_pb2.CheckEffectResponse(state="unknown")
    unknown = 0
    while unknown < UNKNOWN_CHECKS_MAX and await patience.pause():
        try:
            reply = await peers.tools.CheckEffect(request)
        except (ProviderUnavailable, Overloaded):  # away, or a disk that refuses its records for now
            continue
        except (HeadraceError, grpc.aio.AioRpcError):
            # No such tool any more, or a tools service that keeps no records: nothing will be known.
            return tools_pb2.CheckEffectResponse(state="unknown")
        if reply.state != "unknown":
            return reply
        unknown += 1
    return reply


def _name_question(call: Call) -> str:
    return f"unknown {call.asked}"


async def _resolve_unknown(scope: Scope, call: Call, key: str) -> tools_pb2.ToolOutcome | str:
    """Report the unknown outcome; an attached reader may have the call run again as another effect."""
    known = f"tool {call.name!r} was cut off, and whether it has taken effect is not known"
    await scope.notice("OUTCOME_UNKNOWN", known)
    note, question = "", _name_question(call)
    if scope.run.feed.readers or ask_person.has_asked(scope, call, question):
        call.asked += 1
        found = await verdict(scope.run.rules, call)
        asked = Verdict("ask", f"{known}; approve to run it again", "high", found.answerers)
        answer = await ask_person.ask_person(scope, call, asked, question)
        if answer.decision != "reject":
            call.params = answer.arguments or call.params
            return f"{make_effect_key(scope.run.id, call)}/{key.count('/')}"
        note = answer.note
    return outcomes.make_failure(
        "unknown", f"{known}; find out before you try again", **({"note": note} if note else {})
    )
