"""One call of an agent: a run from its query, or from the answers it waited for, to its result."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import orjson

from headrace.fold import Fold
from headrace.v1 import agent_pb2
from services.facade.faces.gate_answers import APPROVAL, GateRef
from services.facade.mcp_server.elicitation import build_elicitation
from services.facade.mcp_server.protocol import Message
from services.facade.responses.frame_writer import FrameWriter

RESOURCES = "headrace://chats/"

ARTIFACTS_MAX = 50
"""Files of a run that its result links."""


class ToolCall:
    """Takes a run's events: folds them, tells progress, and asks the client's user where it can."""

    def __init__(self, message: Message, writer: FrameWriter) -> None:
        self._message = message
        self._writer = writer
        self._fold = Fold()
        self._gates: dict[str, tuple[agent_pb2.GateOpen, str]] = {}
        """Open gates, each with its call's arguments."""
        self._links: dict[str, agent_pb2.ArtifactPublish] = {}
        self._progress = 0
        self.answered: frozenset[str] = frozenset()
        """Gates that this request answers."""

    @property
    def run_id(self) -> str:
        return self._fold.run_id

    @property
    def is_over(self) -> bool:
        return self._fold.end is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the call is to end with what the client is to ask for."""
        return bool(self._gates) and self._message.is_modern and self._message.can_elicit

    async def wait_until_ready(self) -> None:
        if self._writer.has_frames:
            await self._writer.wait_until_drained()

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        self._fold.apply(delta)
        match delta.WhichOneof("payload"):
            case "content_delta" | "reasoning_delta" | "tool_args":
                return True  # nearly all are these
            case "gate_open":
                return self._open_gate(delta.gate_open)
            case "gate_close":
                self._gates.pop(delta.gate_close.gate_id, None)
            case "tool_start":
                return self._tell(f"calls {delta.tool_start.tool_name}")
            case "task_start":
                return self._tell(f"task: {delta.task_start.task_name or delta.task_start.description}")
            case "subagent_start":
                return self._tell(f"{delta.subagent_start.agent_key}: {delta.subagent_start.goal}")
            case "run_notice":
                return self._tell(delta.run_notice.message)
            case "artifact_publish" if len(self._links) < ARTIFACTS_MAX:
                self._links[delta.artifact_publish.artifact_id] = delta.artifact_publish
            case _:
                pass
        return True

    def _open_gate(self, gate: agent_pb2.GateOpen) -> bool:
        if gate.gate_id in self.answered:
            return True
        block = self._fold.blocks.get(gate.tool_id)
        self._gates[gate.gate_id] = gate, (block.params or block.text) if block else ""
        if self._message.is_modern:
            return True
        if not self._message.can_elicit:
            return self._tell(f"{gate.tool_name} waits for an answer, which Headrace's own clients can give")
        asked = build_elicitation(*self._gates[gate.gate_id])
        ref = GateRef(self.run_id, self._fold.last_seq, gate.gate_id, gate.kind == APPROVAL)
        return self._send({"id": str(ref), "method": "elicitation/create", "params": asked})

    def _tell(self, text: str) -> bool:
        self._progress += 1
        token = self._message.progress_token
        if token is None:
            return True
        params = {"progressToken": token, "progress": self._progress, "message": text[:1000]}
        return self._send({"method": "notifications/progress", "params": params})

    def _send(self, message: dict[str, Any]) -> bool:
        return self._writer.send_frame(encode_frame(orjson.dumps({"jsonrpc": "2.0"} | message)))

    def build_result(self) -> dict[str, Any]:
        """Return the result of a run that has ended or waits."""
        if self._fold.end is None:
            return self._build_input_required()
        match self._fold.end.WhichOneof("payload"):
            case "run_complete":
                return self._build_answer(self._fold.end.run_complete)
            case "run_error":
                why = self._fold.end.run_error.error
                return self._build_failure(f"{why.code}: {why.message}")
            case _:
                return self._build_failure("CANCELLED: the run was cancelled")

    def _build_input_required(self) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for gate, arguments in self._gates.values():
            ref = GateRef(self.run_id, self._fold.last_seq, gate.gate_id, gate.kind == APPROVAL)
            asked[str(ref)] = {"method": "elicitation/create", "params": build_elicitation(gate, arguments)}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": self.run_id}

    def _build_answer(self, end: agent_pb2.RunComplete) -> dict[str, Any]:
        fold = self._fold
        structured: dict[str, Any] = {"answer": fold.answer, "chatId": fold.chat_id, "runId": fold.run_id}
        structured |= {"finishReason": end.finish_reason}
        structured |= {"output": orjson.loads(end.output)} if end.output else {}
        links = [
            {
                "type": "resource_link",
                "uri": f"{RESOURCES}{fold.chat_id}/files/{quote(_read_path(link.url))}",
                "name": link.name,
                "mimeType": link.mime_type,
                "size": link.size_bytes,
            }
            for link in self._links.values()
        ]
        content = [{"type": "text", "text": fold.answer or end.output}, *links]
        return {"content": content, "structuredContent": structured, "isError": False}

    def _build_failure(self, text: str) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}], "isError": True}


def _read_path(url: str) -> str:
    """Return the path in the workspace of a file at /api/resource."""
    return parse_qs(urlsplit(url).query).get("path", [""])[0]


def encode_frame(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % message
