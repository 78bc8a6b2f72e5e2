"""Approvals, questions and forms for which a run waits, and lines as answers to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.runs.fold import Fold
from headrace.shown_text import SHOWN_CHARS_MAX
from headrace.v1 import agent_pb2

APPROVAL = "approval"
ASK_HUMAN = "ask_human"

DECISIONS = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"}


class Form(msgspec.Struct, frozen=True):
    """The part of a frontend tool's arguments that a one-line prompt can show."""

    question: str = ""
    context: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


@dataclass(frozen=True, slots=True)
class PendingInput:
    id: str
    """Id of the approval or of the tool call."""
    tool_name: str
    is_approval: bool
    form: Form = Form()
    details: str = ""
    """Arguments of the call, and the reason for an approval."""
    needs_hash: bool = False
    """Whether an approval must include the hash of the arguments, because they are long."""

    @property
    def prompt(self) -> str:
        if self.is_approval:
            choices = "y(es) or n(o), optionally followed by a note; or other arguments as JSON"
            return f"Allow {self.tool_name}? {self.details}\n{choices}"
        lines = [self.form.question or f"{self.tool_name} {self.details}", self.form.context]
        lines += [f"{number}. {choice}" for number, choice in enumerate(self.form.choices, start=1)]
        if self.form.default:
            lines.append(f"(empty: {self.form.default})")
        return "\n".join(line for line in lines if line)

    def build_submission(self, line: str) -> dict[str, Any] | None:
        """Return fields of a SubmitRequest for a line, `payload` as a value; None if the line is not a valid answer."""
        payload = _read_decision(line) if self.is_approval else self._fill_form(line)
        if payload is None:
            return None
        return {"approval_id" if self.is_approval else "tool_id": self.id, "payload": payload}

    def _fill_form(self, line: str) -> Any:
        if isinstance(fields := _parse_json(line), dict):
            return fields
        text = line or self.form.default
        if line.isdecimal() and 0 < int(line) <= len(self.form.choices):
            text = self.form.choices[int(line) - 1]
        is_question = self.tool_name.casefold() == ASK_HUMAN
        is_choice = not self.form.choices or text in (*self.form.choices, self.form.default)
        if not text or (is_question and not is_choice):
            return None
        return {"choice" if self.form.choices and not is_question else "answer": text}


class PendingInputs:
    """The open gates of a run that its user can answer with a line."""

    def __init__(self, state: Fold) -> None:
        self.added = asyncio.Event()
        """Set when an input is added; the waiter clears it."""
        self._state = state
        self._known_ids: set[str] = set()
        self._answered_ids: set[str] = set()

    @property
    def first(self) -> PendingInput | None:
        open_gates = (gate.open for gate_id, gate in self._state.gates.items() if gate_id not in self._answered_ids)
        return next(filter(None, map(self._read, open_gates)), None)

    def add(self, gate: agent_pb2.GateOpen) -> PendingInput | None:
        """Return the input that a gate asks for; None if it was repeated, or is not for a line of this user."""
        if gate.gate_id in self._known_ids or (pending := self._read(gate)) is None:
            return None
        self._known_ids.add(gate.gate_id)
        self.added.set()
        return pending

    def remove(self, input_id: str) -> None:
        self._answered_ids.add(input_id)

    def _read(self, gate: agent_pb2.GateOpen) -> PendingInput | None:
        # `not_requester` excludes the user of this terminal; a secret or a server's form is not typed into a chat.
        if gate.answerers.not_requester or gate.HasField("need") or gate.HasField("ask"):
            return None
        arguments, name = self._state.get_arguments(gate.tool_id), gate.tool_name or "a tool"
        if gate.kind == APPROVAL:
            reason = f"{gate.risk} risk: {gate.reason}" if gate.risk else gate.reason
            is_long, details = len(arguments) > SHOWN_CHARS_MAX, f"{arguments}\n{reason}".strip()
            return PendingInput(gate.gate_id, name, is_approval=True, details=details, needs_hash=is_long)
        try:
            form = msgspec.json.decode(arguments, type=Form)
        except msgspec.DecodeError:
            form = Form()
        return PendingInput(gate.gate_id, name, is_approval=False, form=form, details=arguments)


def _read_decision(line: str) -> dict[str, Any] | None:
    if isinstance(arguments := _parse_json(line), dict):
        return {"decision": "edit", "arguments": arguments}
    word, _, note = line.partition(" ")
    decision = DECISIONS.get(word.rstrip(",.:;").casefold())
    if decision is None:
        return None
    return {"decision": decision, "note": note.strip()} if note.strip() else {"decision": decision}


def _parse_json(line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
