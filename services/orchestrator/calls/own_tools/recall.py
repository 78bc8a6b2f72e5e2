"""Tools that read memory: parts of the chat outside the context window, and facts about the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, TypeAlias

import msgspec

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator.calls import results
from services.orchestrator.peers.models import get_model_info, make_limits
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope
from services.runtime.clock import format_day

WINDOW_CHARS_RATIO = 0.25
"""Answer characters per token of the model's window, about a sixteenth of the window."""

CHARS_MIN, CHARS_MAX = 1_000, 12_000

Number = Annotated[int, msgspec.Meta(le=10**12)]
"""A number of lines or characters: more than any chat has, and small enough for the request's field.

The bound is not part of the schema that models see, because changing that would break replays of recorded runs.
"""

READ_HISTORY = tools_pb2.Tool(
    name="read_history",
    description="Read earlier messages of this conversation that you are not shown any more: by line numbers, such as "
    "those that a summary or a notice names, or by words that they hold. One line alone comes with its images and "
    "files.",
    parameters="""{"type":"object","properties":{
"first":{"type":"integer","minimum":1,"description":"First line"},
"last":{"type":"integer","minimum":1,"description":"Last line"},
"query":{"type":"string","maxLength":500,"description":"Words; messages that hold most of them come first"}},
"additionalProperties":false}""",
    kind="own",
    tier="discovered",
    effect="read",
)

READ_RESULT = tools_pb2.Tool(
    name="read_result",
    description="Read the whole result of an earlier tool call that you were shown in part, one part at a time; with "
    "its images and files.",
    parameters="""{"type":"object","properties":{
"id":{"type":"string","minLength":1,"maxLength":256,"description":"The call's id"},
"offset":{"type":"integer","minimum":0,"description":"Characters to skip"}},
"required":["id"],"additionalProperties":false}""",
    kind="own",
    tier="discovered",
    effect="read",
)

HISTORY_TOOLS = (READ_HISTORY, READ_RESULT)
HISTORY_NAMES = frozenset(tool.name for tool in HISTORY_TOOLS)


class _HistoryArguments(msgspec.Struct):
    first: Number = 0
    last: Number = 0
    query: str = ""


class _ResultArguments(msgspec.Struct):
    id: str
    offset: Number = 0


async def read_history(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    try:
        given = msgspec.json.decode(call.effective, type=_HistoryArguments, strict=False)
    except msgspec.ValidationError as error:
        return results.make_failure("INVALID_ARGUMENTS", str(error))
    request = memory_pb2.ReadHistoryRequest(
        **_describe_reader(scope),
        first_n=given.first,
        last_n=given.last,
        query=given.query,
        chars_max=await _measure_room(scope, peers),
    )
    try:
        found = await peers.memory.ReadHistory(request)
    except InvalidRequest as error:
        return results.make_failure("INVALID_ARGUMENTS", error.message)
    call.media, unseen = await results.select_media(scope, peers, found.media)
    texts = [_format_message(message) for message in found.messages]
    if found.left_out:
        on = f"; go on with first={found.next_n}" if found.next_n else ""
        texts.append(f"[{found.left_out:,} more messages{on}]")
    if unseen:
        texts.append(unseen)
    return tools_pb2.ToolOutcome(ok=True, result="\n\n".join(texts) or "[no such messages]")


async def read_result(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    try:
        given = msgspec.json.decode(call.effective, type=_ResultArguments, strict=False)
    except msgspec.ValidationError as error:
        return results.make_failure("INVALID_ARGUMENTS", str(error))
    request = memory_pb2.ReadResultRequest(
        **_describe_reader(scope),
        tool_call_id=given.id,
        offset=given.offset,
        chars_max=await _measure_room(scope, peers),
    )
    try:
        found = await peers.memory.ReadResult(request)
    except NotFound as error:
        return results.make_failure("NOT_FOUND", error.message)
    call.media, unseen = await results.select_media(scope, peers, found.media)
    end = given.offset + len(found.text)
    note = f"\n[characters {given.offset:,} to {end:,} of {found.chars:,}"
    note += f"; go on with offset={end}]" if end < found.chars else "]"
    note += f"\n{unseen}" if unseen else ""
    return tools_pb2.ToolOutcome(ok=True, result=found.text + note)


def _describe_reader(scope: Scope) -> dict[str, Any]:
    return {"chat_id": scope.run.chat_id, "run_id": scope.run.id, "context_id": scope.context_id}


async def _measure_room(scope: Scope, peers: Peers) -> int:
    """Return the maximum characters of an answer; the rest of the window is left for work."""
    model = scope.settings.model
    limits = make_limits(await get_model_info(peers, model.provider_key or "", model.model or ""))
    return round(min(max(limits.context_window_tokens * WINDOW_CHARS_RATIO, CHARS_MIN), CHARS_MAX))


def _format_message(message: memory_pb2.HistoryMessage) -> str:
    head = f"[{message.n}] {message.role}"
    if message.role == "tool":
        head = f"[{message.n}] result of {message.name} ({message.tool_call_id}), {message.chars:,} characters"
    calls = [f"calls {call.name} {call.arguments} ({call.id})" for call in message.tool_calls]
    return f"{head}: " + "\n".join(text for text in (message.text, *calls) if text)


OwnTool: TypeAlias = Callable[[Scope, Peers, Call], Awaitable[tools_pb2.ToolOutcome]]

RECALLED_MAX = 20
TEXT_CHARS_MAX = 2000

_REMEMBER = tools_pb2.Tool(
    name="remember",
    description="Keep a lasting fact about the user for later chats, such as a preference, a name or a plan. Not for"
    " what matters in this chat alone, and never for passwords or other secrets.",
    parameters=f"""{{"type":"object","properties":{{
"fact":{{"type":"string","minLength":1,"maxLength":{TEXT_CHARS_MAX},"description":"One sentence that stands alone"}},
"topic":{{"type":"string","maxLength":64,
"description":"What it is about, such as home town; an older fact of this topic ends"}},
"replaces":{{"type":"array","items":{{"type":"string","maxLength":36}},"maxItems":20,
"description":"Ids of facts that are no longer true, from recall"}},
"onlyHere":{{"type":"boolean","description":"Whether it is for you alone, and for no other agent"}}}},
"required":["fact"],"additionalProperties":false}}""",
    kind="own",
    tier="enabled",
    effect="idempotent",
)

_RECALL = tools_pb2.Tool(
    name="recall",
    description="Search the facts that are kept about the user from all chats, by words.",
    parameters="""{"type":"object","properties":{
"query":{"type":"string","minLength":1,"maxLength":1000,"description":"Words that the fact may hold"}},
"required":["query"],"additionalProperties":false}""",
    kind="own",
    tier="enabled",
    effect="read",
)

_FORGET = tools_pb2.Tool(
    name="forget",
    description="Delete a fact about the user for good, when the user asks for it. Where it has only changed, remember"
    " the new fact instead.",
    parameters="""{"type":"object","properties":{
"factId":{"type":"string","minLength":36,"maxLength":36,"description":"Its id, from recall"}},
"required":["factId"],"additionalProperties":false}""",
    kind="own",
    tier="enabled",
    effect="idempotent",
)

FACT_TOOLS = (_REMEMBER, _RECALL, _FORGET)


class _NewFact(msgspec.Struct):
    fact: str
    topic: str = ""
    replaces: list[str] = []
    onlyHere: bool = False


class _Question(msgspec.Struct):
    query: str


class _OldFact(msgspec.Struct):
    factId: str


def _return_failures(execute: OwnTool) -> OwnTool:
    """Wrap the tool so that memory's errors become results, on which the model can act."""

    @wraps(execute)
    async def execute_or_fail(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
        try:
            return await execute(scope, peers, call)
        except HeadraceError as error:
            return results.make_failure(error.reason, error.message)

    return execute_or_fail


def are_offered(scope: Scope) -> bool:
    """Return whether the run's agent uses facts; sub-agents ask their caller instead."""
    return scope.run.agent.memory.facts != "off" and not scope.depth


@_return_failures
async def remember_fact(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    given = msgspec.json.decode(call.effective, type=_NewFact)
    agent_key = scope.run.agent.key if given.onlyHere else ""
    request = memory_pb2.RememberRequest(
        text=given.fact,
        topic=given.topic,
        replaces=given.replaces,
        scope="agent" if agent_key else "user",
        agent_key=agent_key,
        source=memory_pb2.FactSource(chat_id=scope.run.chat_id, run_id=scope.run.id),
        # The call may be repeated by another owner of the run.
        request_id=f"{scope.run.id} {call.call_id}"[:128],
    )
    reply = await peers.memory.Remember(request)
    return results.make_success(factId=reply.fact_id)


@_return_failures
async def recall_facts(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    query = msgspec.json.decode(call.effective, type=_Question).query
    request = memory_pb2.RecallFactsRequest(query=query, agent_key=scope.run.agent.key, limit=RECALLED_MAX)
    reply = await peers.memory.RecallFacts(request)
    return results.make_success(facts=[_describe_fact(hit.fact) for hit in reply.hits])


@_return_failures
async def forget_fact(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    request = memory_pb2.DeleteFactRequest(fact_id=msgspec.json.decode(call.effective, type=_OldFact).factId)
    await peers.memory.DeleteFact(request)
    return results.make_success()


def _describe_fact(fact: memory_pb2.Fact) -> dict[str, str]:
    since = format_day(fact.updated_at)
    known = {"factId": fact.fact_id, "fact": fact.text, "topic": fact.topic, "since": since}
    return {name: value for name, value in known.items() if value}


FUNCTIONS = {"remember": remember_fact, "recall": recall_facts, "forget": forget_fact}
