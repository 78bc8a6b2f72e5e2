"""The task of a remote agent: its artifacts as text, its questions to our user, and notes of it in the log.

A run that is taken over reads the notes first, so that no message in them is sent again.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import orjson
from google.protobuf import json_format

from headrace.a2a import a2a_pb2
from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.calls.own_tools.catalogue import QUESTION
from services.orchestrator.ids import derived_id
from services.orchestrator.mode_api import answering
from services.orchestrator.run.restore.fit import Kept
from services.orchestrator.run.scope import Scope

BETWEEN = "\n\n"
"""Separator between two artifacts."""


class Artifacts:
    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._data: dict[str, list[str]] = {}
        self.left_out = 0
        """Number of parts with raw bytes, which an answer cannot hold."""

    def replace_all(self, artifacts: list[a2a_pb2.Artifact]) -> None:
        self._texts.clear()
        self._data.clear()
        for artifact in artifacts:
            self._put(artifact, append=False)

    def take(self, update: a2a_pb2.TaskArtifactUpdateEvent) -> str | None:
        """Return the text appended by the update; None if the whole text must be compared."""
        artifact_id, artifact = update.artifact.artifact_id, update.artifact
        is_more = update.append and artifact_id in self._texts and artifact_id == next(reversed(self._texts))
        is_text = bool(self._texts.get(artifact_id)) and all(part.HasField("text") for part in artifact.parts)
        self._put(artifact, append=update.append)
        return "".join(part.text for part in artifact.parts) if is_more and is_text else None

    def join(self) -> str:
        """Return the whole text; an artifact without text contributes its data as JSON."""
        found = ("".join(texts) or "\n".join(self._data[artifact_id]) for artifact_id, texts in self._texts.items())
        return BETWEEN.join(text for text in found if text)

    def _put(self, artifact: a2a_pb2.Artifact, *, append: bool) -> None:
        if not append or artifact.artifact_id not in self._texts:
            self._texts[artifact.artifact_id], self._data[artifact.artifact_id] = [], []
        texts, data = self._texts[artifact.artifact_id], self._data[artifact.artifact_id]
        for part in artifact.parts:
            match part.WhichOneof("content"):
                case "data":
                    data.append(dump_data(part))
                case "raw":
                    self.left_out += 1
                case _:
                    texts.append(read_text(part))


def read_text(part: a2a_pb2.Part) -> str:
    """Return a part's text, or a link to its file."""
    return f"[{part.filename or part.url}]({part.url})" if part.HasField("url") else part.text


def dump_data(part: a2a_pb2.Part) -> str:
    """Return a part's data as JSON text, with integers restored."""
    value = json_format.MessageToDict(part.data)
    return orjson.dumps(_restore(value), option=orjson.OPT_SORT_KEYS).decode()


def _restore(value: object) -> object:
    """Return data with integers in place of the floats that protobuf made of them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: _restore(one) for key, one in value.items()}
    return [_restore(one) for one in value] if isinstance(value, list) else value


def join_message(message: a2a_pb2.Message) -> str:
    """Return a message's text; if it has none, its data as JSON."""
    texts = [read_text(part) for part in message.parts if part.HasField("text") or part.HasField("url")]
    data = [dump_data(part) for part in message.parts if part.HasField("data")]
    return "".join(texts) or "\n".join(data)


QUESTION_CHARS_MAX = 8000


SEND_AGAIN, LEAVE = "send it again", "leave it"


def make_tool(timeout_ms: int) -> tools_pb2.Tool:
    """Return the tool that asks the user, with this timeout."""
    tool = tools_pb2.Tool(timeout_ms=timeout_ms)
    tool.MergeFrom(QUESTION)
    return tool


def make_call(run_id: str, context_id: str, number: int, arguments: dict[str, Any]) -> llm_pb2.ToolCallDelta:
    call_id = f"remote_{derived_id(run_id, context_id, str(number))}"
    return llm_pb2.ToolCallDelta(index=0, id=call_id, name=QUESTION.name, arguments=orjson.dumps(arguments).decode())


def describe_question(status: a2a_pb2.TaskStatus, name: str) -> dict[str, Any]:
    """Return the arguments of the call that asks the user for a task's input."""
    parts = [*status.message.parts]
    gates = [gate for part in parts if part.HasField("data") and (gate := _describe_gate(part))]
    texts = [read_text(part) for part in parts if part.HasField("text") or part.HasField("url")]
    data = [dump_data(part) for part in parts if part.HasField("data")]
    question = "\n".join(gates or [*texts, *data]) or "It waits for an answer."
    if status.state == a2a_pb2.TASK_STATE_AUTH_REQUIRED:
        question = f"{name} needs an authorization, and continues once it has one: {question}"
    return {"question": question[:QUESTION_CHARS_MAX]}


def _describe_gate(part: a2a_pb2.Part) -> str:
    """Return the question of another Headrace's gate; empty if the part is not a gate."""
    gate: Any = json_format.MessageToDict(part.data)
    if not isinstance(gate, dict) or not isinstance(gate.get("gateId"), str):
        return ""
    if isinstance(answers := gate.get("answers"), list):
        return f"{gate.get('toolName')} {gate.get('arguments')}: {' or '.join(map(str, answers))}?"
    try:
        arguments = orjson.loads(str(gate.get("arguments")))
    except orjson.JSONDecodeError:
        return ""
    question = arguments.get("question") if isinstance(arguments, dict) else None
    return question if isinstance(question, str) else ""


def read_answer(result: str) -> str:
    """Return the user's answer in a call's result, as text."""
    try:
        given = orjson.loads(result.partition("\n")[0])
    except orjson.JSONDecodeError:
        return result
    if isinstance(given, dict) and isinstance(given.get("answer"), str):
        return given["answer"]
    return given if isinstance(given, str) else orjson.dumps(given).decode()


class Sent(msgspec.Struct, frozen=True):
    """A message, logged before it is sent."""

    message_id: str
    context_id: str = ""
    task_id: str = ""
    """The task that it answers; empty if it begins a task."""


class Received(msgspec.Struct, frozen=True):
    """The task that received the message, logged before its result is awaited."""

    task_id: str
    context_id: str


class Asked(msgspec.Struct, frozen=True):
    """The task's question, logged before the user is asked."""

    message_id: str = ""
    """Id of the message that asks it."""
    at: int = 0
    """Time of the question in Unix nanoseconds; 0 if the agent did not state it."""


class Unknown(msgspec.Struct, frozen=True):
    """The message's delivery cannot be determined, so a person is asked."""

    reason: str = ""


N = TypeVar("N", Sent, Received, Asked, Unknown)


NAMES: dict[type, str] = {Sent: "sent", Received: "received", Asked: "asked", Unknown: "unknown"}


class Notes:
    """The notes of one scope: first read in order, then written."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._step = 0

    def recall(self, kind: type[N]) -> N | None:
        """Return the next note if it is of this kind; None if the log has another one or no more."""
        kept = self._scope.restored.kept.get(self._step + 1)
        if kept is None or kept["name"] != NAMES[kind]:
            return None
        self._step += 1
        return msgspec.convert(kept["value"], kind)

    def recall_last(self, kind: type[N]) -> N | None:
        """Return the last of the next notes of this kind, which replaces the earlier ones; None without any."""
        last = None
        while (note := self.recall(kind)) is not None:
            last = note
        return last

    async def keep(self, note: Sent | Received | Asked | Unknown) -> None:
        self._step += 1
        await answering.keep(self._scope, self._step, NAMES[type(note)], Kept(msgspec.json.encode(note)))
