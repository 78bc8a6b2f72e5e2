"""Facts about the user that match the query, for the reminder at the end of each request."""

from __future__ import annotations

import structlog

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2
from services.orchestrator.peers.models import estimate_tokens
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run

HITS_MAX = 100

QUERY_CHARS_MAX = 2000
"""The beginning of a message says what it is about; a paste behind it does not."""

log = structlog.get_logger()


async def recall_for_query(run: Run, peers: Peers) -> list[str]:
    """Return the best facts within the agent's limit of tokens; none where memory does not answer."""
    memory, message = run.agent.memory, run.query.message[:QUERY_CHARS_MAX]
    if memory.facts != "recall" or not message.strip():
        return []
    request = memory_pb2.RecallFactsRequest(query=message, agent_key=run.agent.key, limit=HITS_MAX)
    try:
        reply = await peers.memory.RecallFacts(request)
    except HeadraceError as error:
        log.warning("facts not recalled", run_id=run.id, reason=error.reason)
        return []
    recalled: list[str] = []
    left = memory.facts_tokens
    for hit in reply.hits:
        text = " ".join(hit.fact.text.split())
        left -= estimate_tokens(len(text.encode()) + 3)  # with its dash and line break
        if left < 0:
            break
        recalled.append(text)
    return recalled
