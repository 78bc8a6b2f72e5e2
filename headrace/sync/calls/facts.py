"""The client's calls about facts: what is known about a user in all chats."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.sync.calls.unary import UnaryCalls
from headrace.v1 import memory_pb2


class FactCalls(UnaryCalls):
    _memory: Any

    def remember(self, text: str, *, topic: str = "", request_id: str = "") -> memory_pb2.Fact:
        """Store a fact about the user, which ends an older one of the same topic."""
        request = memory_pb2.RememberRequest(text=text, topic=topic, request_id=request_id)
        reply: memory_pb2.RememberResponse = self._send(self._memory.Remember, request)
        return reply.fact

    def facts(self, *, page_size: int = 0, page_token: str = "") -> memory_pb2.ListFactsResponse:
        """Return a page of valid facts, the newest first."""
        request = memory_pb2.ListFactsRequest(page_size=page_size, page_token=page_token)
        return self._send(self._memory.ListFacts, request)

    def recall(self, query: str, *, limit: int = 0) -> list[memory_pb2.FactHit]:
        """Return the valid facts that hold words of `query`, the best first; where memory has a model for vectors also
        those that say the like in other words, by a call that the model's provider bills."""
        request = memory_pb2.RecallFactsRequest(query=query, limit=limit)
        reply: memory_pb2.RecallFactsResponse = self._send(self._memory.RecallFacts, request)
        return list(reply.hits)

    def delete_fact(self, fact_id: str) -> memory_pb2.Fact:
        """Delete a fact; its text has left the store when this returns the tombstone."""
        request = memory_pb2.DeleteFactRequest(fact_id=fact_id)
        reply: memory_pb2.DeleteFactResponse = self._send(self._memory.DeleteFact, request)
        return reply.fact

    def edit_fact(self, fact_id: str, *, text: str | None = None, topic: str | None = None) -> memory_pb2.Fact:
        """Change a fact's text or topic, what is None stays; the text that it had has left the store."""
        request = memory_pb2.UpdateFactRequest(fact_id=fact_id, text=text, topic=topic)
        reply: memory_pb2.UpdateFactResponse = self._send(self._memory.UpdateFact, request)
        return reply.fact

    def export_facts(self) -> Generator[memory_pb2.Fact]:
        """Yield all facts of the user, the oldest first, ended ones and tombstones too."""
        token = ""
        while True:
            request = memory_pb2.ExportFactsRequest(page_token=token)
            page: memory_pb2.ExportFactsResponse = self._send(self._memory.ExportFacts, request)
            yield from page.facts
            if not (token := page.next_page_token):
                return
