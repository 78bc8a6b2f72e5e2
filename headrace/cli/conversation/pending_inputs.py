"""Approvals, questions and forms for which a run waits, and lines as answers to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.runs.fold import Fold
from headrace.shown_text import SHOWN_CHARS_MAX
from headrace.v1 import agent_pb2

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
            choices = "y(es), n(o), with a note behind it; or other arguments as JSON"
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
    def __init__(self) -> None:
        self.added = asyncio.Event()
        """Set when an input is added; the waiter clears it."""
        self._open: dict[str, PendingInput] = {}
        self._known_ids: set[str] = set()

    @property
    def first(self) -> PendingInput | None:
        return next(iter(self._open.values()), None)

    def apply(self, delta: agent_pb2.AgentDelta, state: Fold) -> PendingInput | None:
        """Consume an event that `state` has already applied; return the input that it asks for, if any."""
        match delta.WhichOneof("payload"):
            case "tool_end":
                call = state.blocks.get(delta.tool_end.tool_id)
                if call is not None and call.tool_type == "frontend" and call.params:
                    try:
                        form = msgspec.json.decode(call.params, type=Form)
                    except msgspec.DecodeError:
                        form = Form()
                    name = call.name or "a tool"
                    return self._add(PendingInput(call.id, name, is_approval=False, form=form, details=call.params))
            case "gate_open" if delta.gate_open.answerers.not_requester:
                # This gate excludes the requester, who is the user of this terminal.
                self._known_ids.add(delta.gate_open.gate_id)
                self.remove(delta.gate_open.gate_id)
            case "approval_ask":
                request = delta.approval_ask
                reason = f"{request.risk} risk: {request.reason}" if request.risk else request.reason
                call = state.blocks.get(request.tool_id)
                name, arguments = (call.name, call.params) if call is not None else ("", "")
                details = f"{arguments}\n{reason}".strip()
                is_long = len(arguments) > SHOWN_CHARS_MAX
                name = name or "a tool"
                return self._add(
                    PendingInput(request.approval_id, name, is_approval=True, details=details, needs_hash=is_long)
                )
            case "approval_answer":
                self.remove(delta.approval_answer.approval_id)
            case "tool_result":
                self.remove(delta.tool_result.tool_id)
            case "request_submit":
                self.remove(delta.request_submit.tool_id)
            case _:
                pass
        return None

    def remove(self, input_id: str) -> None:
        self._open.pop(input_id, None)

    def _add(self, pending: PendingInput) -> PendingInput | None:
        if pending.id in self._known_ids:
            return None  # the event was repeated after a reconnect
        self._known_ids.add(pending.id)
        self._open[pending.id] = pending
        self.added.set()
        return pending


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
