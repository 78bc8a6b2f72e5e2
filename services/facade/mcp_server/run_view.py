"""Presents a run to the MCP client: its answer, its files and its open gates."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import orjson

from headrace.runs.fold import Fold
from headrace.v1 import agent_pb2
from services.facade.faces.gate_answers import APPROVAL, GateRef
from services.facade.mcp_server.elicitation import build_elicitation

RESOURCES = "headrace://chats/"


class RunView:
    """Consumes a run's events in order."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.answered: frozenset[str] = frozenset()
        """Gates that this request answers."""

    @property
    def is_over(self) -> bool:
        return self.fold.end is not None

    @property
    def gates(self) -> list[agent_pb2.GateOpen]:
        """Return the open gates that the request does not answer."""
        return [gate.open for gate_id, gate in self.fold.gates.items() if gate_id not in self.answered]

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        self.fold.apply(delta)
        return True

    async def wait_until_ready(self) -> None: ...

    def build_elicitation(self, gate: agent_pb2.GateOpen) -> dict[str, Any]:
        return build_elicitation(gate, self.fold.get_arguments(gate.tool_id))

    def build_input_requests(self) -> dict[str, Any]:
        """Return the open gates as input requests; a gate keeps its name for the life of the run."""
        return {
            self.make_name(gate): {"method": "elicitation/create", "params": self.build_elicitation(gate)}
            for gate in self.gates
        }

    def make_name(self, gate: agent_pb2.GateOpen) -> str:
        return str(GateRef(self.fold.run_id, 0, gate.gate_id, gate.kind == APPROVAL))

    def build_result(self) -> dict[str, Any]:
        """Return the result of the call of a run that has ended or waits."""
        if self.fold.end is None:
            asked = self.build_input_requests()
            return {"resultType": "input_required", "inputRequests": asked, "requestState": self.fold.run_id}
        match self.fold.end.WhichOneof("payload"):
            case "run_complete":
                return self._build_answer(self.fold.end.run_complete)
            case "run_error":
                why = self.fold.end.run_error.error
                return _build_failure(f"{why.code}: {why.message}")
            case _:
                return _build_failure("CANCELLED: the run was cancelled")

    def _build_answer(self, end: agent_pb2.RunComplete) -> dict[str, Any]:
        fold = self.fold
        structured: dict[str, Any] = {"answer": fold.answer, "chatId": fold.chat_id, "runId": fold.run_id}
        structured |= {"finishReason": end.finish_reason}
        structured |= {"output": orjson.loads(end.output)} if end.output else {}
        links = list[dict[str, Any]]()
        for link in fold.files.values():
            path = parse_qs(urlsplit(link.url).query).get("path", [""])[0]  # of a file at /api/resource
            uri = f"{RESOURCES}{fold.chat_id}/files/{quote(path)}"
            fields = {"name": link.name, "mimeType": link.mime_type, "size": link.size_bytes}
            links.append({"type": "resource_link", "uri": uri, **fields})
        content = [{"type": "text", "text": fold.answer or end.output}, *links]
        return {"content": content, "structuredContent": structured, "isError": False}


def _build_failure(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}
