"""What a run waits for from a person: an approval, an answer, a form; and what a line of text says to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.cli.events import Event

ASK_HUMAN = "ask_human"

DECISIONS = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"}


class Form(msgspec.Struct, frozen=True):
    """The arguments of a frontend tool, as far as they can be asked for in a line."""

    question: str = ""
    context: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that is waited for."""

    wait_id: str
    name: str
    """Of the tool."""
    is_approval: bool
    form: Form = Form()
    told: str = ""
    """Why it is asked, or the arguments, where no form has the question."""

    @property
    def prompt(self) -> str:
        """What the person is asked, some lines."""
        if self.is_approval:
            return f"Allow {self.name}? {self.told}\ny(es), n(o), with a note behind it; or other arguments as JSON"
        lines = [self.form.question or f"{self.name} {self.told}", self.form.context]
        lines += [f"{number}. {choice}" for number, choice in enumerate(self.form.choices, start=1)]
        if self.form.default:
            lines.append(f"(empty: {self.form.default})")
        return "\n".join(line for line in lines if line)

    def body(self, line: str) -> dict[str, Any] | None:
        """What to submit for a line of text; None: it is no answer."""
        if self.is_approval:
            payload = _decision(line)
            return None if payload is None else {"approvalId": self.wait_id, "payload": payload}
        payload = self._filled_in(line)
        return None if payload is None else {"toolId": self.wait_id, "payload": payload}

    def _filled_in(self, line: str) -> Any:
        given = _json(line)
        if isinstance(given, dict):
            return given
        text = line or self.form.default
        if line.isdecimal() and 0 < int(line) <= len(self.form.choices):
            text = self.form.choices[int(line) - 1]
        if not text:
            return None
        return {"choice": text} if self.form.choices and self.name.casefold() != ASK_HUMAN else {"answer": text}


class Waits:
    """Those of one run that nobody has answered, in order."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        """Set when one more is waited for; whoever watches it clears it."""
        self._open: dict[str, Wait] = {}
        self._names: dict[str, str] = {}
        """Of the tools by id."""
        self._frontends: set[str] = set()
        self._arguments: dict[str, str] = {}
        self._asked: set[str] = set()

    @property
    def first(self) -> Wait | None:
        """The one to be answered now."""
        return next(iter(self._open.values()), None)

    def note(self, event: Event) -> Wait | None:
        """Take an event in; the wait that it begins."""
        match event.type:
            case "tool.start":
                self._names[event.tool_id] = event.tool_name
                if event.tool_type == "frontend":
                    self._frontends.add(event.tool_id)
            case "tool.end":
                self._arguments[event.tool_id] = _text(event.tool_params)
                if event.tool_id in self._frontends and event.tool_params:
                    return self._begin(self._frontend(event.tool_id))
            case "approval.ask":
                return self._begin(self._approval(event))
            case "approval.answer":
                self._open.pop(event.approval_id, None)
            case "tool.result" | "request.submit":
                self._open.pop(event.tool_id, None)
            case _:
                pass
        return None

    def answered(self, wait: Wait) -> None:
        """It has an answer."""
        self._open.pop(wait.wait_id, None)

    def _begin(self, wait: Wait) -> Wait | None:
        if wait.wait_id in self._asked:
            return None  # told again after a break
        self._asked.add(wait.wait_id)
        self._open[wait.wait_id] = wait
        self.began.set()
        return wait

    def _frontend(self, tool_id: str) -> Wait:
        arguments = self._arguments[tool_id]
        try:
            form = msgspec.json.decode(arguments, type=Form)
        except msgspec.DecodeError:
            form = Form()
        return Wait(tool_id, self._names.get(tool_id, "a tool"), is_approval=False, form=form, told=arguments)

    def _approval(self, event: Event) -> Wait:
        arguments = self._arguments.get(event.tool_id, "")
        told = f"{arguments}\n{event.risk} risk: {event.reason}" if event.risk else f"{arguments}\n{event.reason}"
        return Wait(event.approval_id, self._names.get(event.tool_id, "a tool"), is_approval=True, told=told.strip())


def _decision(line: str) -> dict[str, Any] | None:
    arguments = _json(line)
    if isinstance(arguments, dict):
        return {"decision": "edit", "arguments": arguments}
    word, _, note = line.partition(" ")
    decision = DECISIONS.get(word.rstrip(",.:;").casefold())
    if decision is None:
        return None
    return {"decision": decision, "note": note.strip()} if note.strip() else {"decision": decision}


def _json(line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()
