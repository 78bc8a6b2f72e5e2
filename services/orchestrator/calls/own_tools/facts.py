"""The tools remember, recall and forget: facts about the user, for agents whose memory.facts is on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TypeAlias

import msgspec

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator.calls import results
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope

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

TOOLS = (_REMEMBER, _RECALL, _FORGET)


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
    """Have what memory refuses as the call's result: the model can act on it."""

    @wraps(execute)
    async def execute_or_fail(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
        try:
            return await execute(scope, peers, call)
        except HeadraceError as error:
            return results.make_failure(error.reason, error.message)

    return execute_or_fail


def are_offered(scope: Scope) -> bool:
    """Return whether the run's agent works with facts; sub-agents ask their caller."""
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
    since = datetime.fromtimestamp(fact.updated_at / 1000, UTC).date().isoformat()
    known = {"factId": fact.fact_id, "fact": fact.text, "topic": fact.topic, "since": since}
    return {name: value for name, value in known.items() if value}


FUNCTIONS = {"remember": remember_fact, "recall": recall_facts, "forget": forget_fact}
