"""Backend tools: the tools service executes them and streams their output.

If the service is lost during a call, the tool's effect decides whether the call runs again; a `once` tool never runs
twice without a person's consent.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection

import grpc
import orjson
import structlog

from headrace.errors import HeadraceError, Overloaded, ProviderUnavailable
from headrace.streams import reading
from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator.calls import results
from services.orchestrator.money.charges import Origin
from services.orchestrator.peers.models import measure_needs
from services.orchestrator.peers.stubs import TOOLS_BACK_S, Peers
from services.orchestrator.people import approvals
from services.orchestrator.people.credentials import ask_credential
from services.orchestrator.people.inputs import ANSWERS_MAX, ask_input
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.approvals.verdict import Verdict, verdict
from services.orchestrator.run.scope import Scope
from services.runtime.rpc.call_ids import forward_metadata, name_tool_credential
from services.runtime.rpc.peer_calls import was_broken_connection

DELAY_S, DELAY_S_MAX = 0.1, 2.0

UNKNOWN_CHECKS_MAX = 3
"""Checks of an unknown outcome; more than one, because an interrupted tool may still be stopping."""

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
    """Return the call's result, or the effect key to run it again with."""
    log.warning("tool stream broke", run_id=scope.run.id, tool=call.name)
    if approvals.has_asked(scope, call, _name_question(call)):
        return await _resolve_unknown(scope, call, key)
    if call.tool is not None and call.tool.effect in ("read", "idempotent"):
        if await patience.pause():
            return key
        return results.make_failure(ProviderUnavailable.reason, GONE)
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
    """Report the unknown outcome; an attached client may approve running the call again under a new effect key."""
    known = f"tool {call.name!r} was cut off, and whether it has taken effect is not known"
    await scope.notice("OUTCOME_UNKNOWN", known)
    note, question = "", _name_question(call)
    if scope.run.feed.readers or approvals.has_asked(scope, call, question):
        call.asked += 1
        found = await verdict(scope.run.rules, call)
        asked = Verdict("ask", f"{known}; approve to run it again", "high", found.answerers)
        answer = await approvals.ask_person(scope, call, asked, question)
        if answer.decision != "reject":
            call.params = answer.arguments or call.params
            return f"{make_effect_key(scope.run.id, call)}/{key.count('/')}"
        note = answer.note
    return results.make_failure(
        "unknown", f"{known}; find out before you try again", **({"note": note} if note else {})
    )


RPC_SLACK_S = 5.0
"""Added to the tool's timeout for the RPC's deadline; the tools service enforces the timeout itself."""


async def execute_backend(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    """Execute the call, again each time a person supplies a missing credential or answers its server's questions."""
    answers: dict[str, tools_pb2.InputAnswer] = {}
    while True:
        # By the time that a value is refused, another call may have been given a better one.
        used = dict(scope.run.credentials.make_metadata())
        outcome = await _execute_once(scope, peers, call, answers.values())
        if asks := [ask for ask in outcome.asks if ask.name not in answers]:
            if len(answers) + len(asks) > ANSWERS_MAX:
                return results.make_failure("TOO_MANY_QUESTIONS", f"its server asks more than {ANSWERS_MAX} times")
            answers |= {answer.name: answer for answer in await ask_input(scope, call, asks)}
            continue
        if not outcome.HasField("needs"):
            return outcome
        name = outcome.needs.name
        problem = await ask_credential(scope, call, outcome.needs, used.get(name_tool_credential(name), ""))
        if problem is not None:
            why = f"the tool did not run: it needs the credential {name!r}: {problem}"
            return results.make_failure("CREDENTIAL_MISSING", why)


async def _execute_once(
    scope: Scope, peers: Peers, call: Call, answers: Collection[tools_pb2.InputAnswer]
) -> tools_pb2.ToolOutcome:
    key = make_effect_key(scope.run.id, call)
    patience = RetryWindow(_timeout_s(scope))
    is_open = call.is_resumed and not answers
    while True:
        if not is_open:
            # If no server is reachable, the call has certainly not started; a broken connection would not prove that.
            if not await peers.wait_for_tools(patience.left_s):
                return results.make_failure(ProviderUnavailable.reason, GONE)
            try:
                return await _stream_call(scope, peers, call, key, answers)
            except ProviderUnavailable as error:
                if not was_broken_connection(error):
                    return results.make_failure(error.reason, error.message)
            except Overloaded as error:
                # Full, or the call that broke off is still being stopped: it did not start, so it may be sent again.
                if not await patience.pause():
                    return results.make_failure(error.reason, error.message)
                continue
            except HeadraceError as error:
                return results.make_failure(error.reason, error.message)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                return results.make_failure("TIMEOUT", "the tool did not end in time")
        is_open = False
        found = await resolve_break(scope, peers, call, key, patience)
        if isinstance(found, tools_pb2.ToolOutcome):
            return found
        key = found


def _timeout_s(scope: Scope) -> float:
    spending = scope.run.spending
    return min(spending.limits.tool_timeout_ms / 1000, spending.time_left_s)


def _make_request(
    scope: Scope, call: Call, key: str, timeout_s: float, max_tokens: int | None, budget: tools_pb2.ToolBudget | None
) -> tools_pb2.ExecuteRequest:
    run = scope.run
    model = scope.settings.model
    return tools_pb2.ExecuteRequest(
        run_id=run.id,
        tool_call_id=call.call_id,
        tool_name=call.name,
        arguments=call.effective,
        effect_key=key,
        chat_id=run.chat_id,
        timeout_ms=round(timeout_s * 1000),
        model=tools_pb2.ToolModel(
            provider_key=model.provider_key or "", model=model.model or "", max_tokens=max_tokens
        ),
        budget=budget,
    )


async def _stream_call(
    scope: Scope, peers: Peers, call: Call, key: str, answers: Collection[tools_pb2.InputAnswer]
) -> tools_pb2.ToolOutcome:
    timeout_s = _timeout_s(scope)
    outcome = results.make_failure("NO_RESULT", "the tool ended without a result")
    spending, reservation, budget = scope.run.spending, None, None
    max_tokens = scope.settings.model.max_tokens
    if call.tool is not None and call.tool.asks_model:
        needs = await measure_needs(peers, scope.settings.model, 0, is_priced=spending.limits_money)
        reservation = spending.reserve_for_tool(call.siblings, needs)
        budget = spending.make_tool_budget(reservation, needs)
        # The tool lowers it to what its money affords, which may be more than the model can write.
        max_tokens = needs.output_tokens_max if budget.HasField("cost_usd") else max_tokens
    request = _make_request(scope, call, key, timeout_s, max_tokens, budget)
    request.answers.extend(answers)
    metadata = (*forward_metadata(), *scope.run.credentials.make_metadata())
    rpc = peers.tools.Execute(request, timeout=timeout_s + RPC_SLACK_S, metadata=metadata)
    charged = common_pb2.Usage()
    try:
        async with reading(rpc) as deltas:
            async for delta in deltas:
                match delta.WhichOneof("delta"):
                    case "output":
                        output = delta.output
                        event = agent_pb2.ToolOutput(tool_id=call.tool_id, stream=output.stream, delta=output.delta)
                        scope.publish(event)
                    case "artifact" | "source" as kind:
                        await _record_delta(scope, delta, kind)
                    case "usage":
                        charged = delta.usage
                    case "sampling":
                        await scope.notice("SAMPLING", delta.sampling.message)
                    case "result":
                        outcome = delta.result
                    case _:
                        pass
    finally:
        model = scope.settings.model
        origin = Origin(scope.agent.key, f"{model.provider_key or ''}/{model.model or ''}")
        spending.settle_tool(reservation, charged, origin)
    return outcome


async def _record_delta(scope: Scope, delta: tools_pb2.ToolDelta, kind: str) -> None:
    if kind == "artifact":
        made = delta.artifact
        event = agent_pb2.ArtifactPublish(
            artifact_id=made.artifact_id,
            run_id=scope.run.id,
            name=made.name,
            mime_type=made.mime_type,
            size_bytes=made.size_bytes,
            url=made.url,
        )
        await scope.record(event)
        scope.notes.artifact_ids[made.artifact_id] = None
    else:
        used = delta.source
        given = {name: getattr(used, name) for name in ("icon", "title", "url") if used.HasField(name)}
        await scope.record(agent_pb2.SourceSnapshot(source_id=used.source_id, run_id=scope.run.id, **given))
