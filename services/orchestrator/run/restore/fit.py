"""Compares the requests of an operator's mode with the recording of its run.

A mode that runs again must make the same requests in the same order. The first difference ends the run, because a later
request would get the answer to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import orjson

from headrace.errors import BY_REASON, HeadraceError, Interrupted, ModeChanged
from headrace.v1 import memory_pb2
from services.orchestrator.run.restore.restored_run import MADE, RestoredScope

Calls: TypeAlias = Sequence[tuple[str, str]]
"""Names and arguments, as JSON text."""

END = "its end"


@dataclass(frozen=True, slots=True)
class Kept:
    """A step's record outside messages: its value, or its failure."""

    value: bytes | None = None
    failure: tuple[str, str, str] | None = None
    """Reason, message, and details as JSON text."""

    said: int = 0
    """Number of the scope's messages before the failure."""

    def dump(self, step: int, name: str) -> str:
        fields: dict[str, object] = {"step": step, "name": name}
        if self.value is not None:
            fields["value"] = orjson.Fragment(self.value)
        if self.failure is not None:
            fields |= {"failure": self.failure, "said": self.said}
        return orjson.dumps(fields).decode()


class Fit:
    """The steps of one scope, counted from 1."""

    def __init__(self, restored: RestoredScope, where: str, list_unopened: Callable[[], list[str]]) -> None:
        """`where` names the scope in errors; `list_unopened` returns recorded tasks below it that have not begun
        yet."""
        self._restored = restored
        self._where = where
        self._list_unopened = list_unopened
        self.step = 0
        self._wish = ""
        self.said_live = 0
        """Number of the scope's messages added after the recording."""
        self._changed: ModeChanged | None = None

    @property
    def said(self) -> int:
        return self._restored.taken + self.said_live

    def begin_step(self, wish: str) -> None:
        """Begin the next step, which requests `wish`. Raises the step's failure if one is recorded."""
        self._check_broken()
        self.step += 1
        self._wish = wish
        self._raise_failure()

    @property
    def has_failure(self) -> bool:
        """Whether the log has a failure of this step."""
        return "failure" in self._restored.kept.get(self.step, {})

    def check_message(self, text: str) -> None:
        """Check that the next record is a message with this text, or that the recording has ended."""
        self._check_kept()
        following = self._find_next()
        if following and following[0].message.role != "user":
            raise self._change(_describe(following), "a message to the model")
        if following and (recorded := _join_text(following[0])) != text:
            differing = f"another message, of {len(recorded)} characters"
            raise self._change(differing, f"a message of {len(text)} characters")
        if not following:
            self._check_used_up()

    def check_answer(self, calls: Calls | None = None, text: str | None = None) -> None:
        """Check that the next record is a model's answer, or that the recording has ended.

        With `calls` or `text`, it must be the mode's own answer with these.
        """
        self._check_kept()
        following = self._find_next()
        if following and following[0].message.role == "user":
            raise self._change(_describe(following), self._wish)
        if following and (following[-1].finish_reason == MADE) != (calls is not None or text is not None):
            raise self._change(_describe(following), self._wish)
        if following and calls is not None:
            self._check_calls(following, calls)
        if following and text is not None and "".join(map(_join_text, following)) != text:
            raise self._change("another text", self._wish)
        if not following:
            self._check_used_up()

    def recall_value(self, name: str) -> bytes | None:
        """Return the step's recorded value as JSON; None if the recording has ended."""
        kept = self._restored.kept.get(self.step)
        if kept is None:
            if not self._restored.is_used_up:
                raise self._change(self._describe_next(), self._wish)
            self._check_used_up()
            return None
        if kept["name"] != name or "value" not in kept:
            raise self._change(f"the value {kept['name']!r}", self._wish)
        return orjson.dumps(kept["value"])

    def check_end(self) -> None:
        """Check that the recording has ended."""
        self._check_broken()
        self.step += 1
        if not self._restored.is_used_up or self._restored.last_kept >= self.step:
            raise self._change(self._describe_next(), END)
        self._wish = END
        self._check_unopened()

    def _check_broken(self) -> None:
        # Code that catches every exception must not continue after the first difference.
        if self._changed is not None:
            raise self._changed

    def _check_calls(self, following: Sequence[memory_pb2.LogMessage], calls: Calls) -> None:
        recorded = [piece.message.tool_calls[0] for piece in following if piece.message.tool_calls]
        names = [call.name for call in recorded]
        if names != [name for name, _ in calls]:
            raise self._change(_describe(following), self._wish)
        for call, (_, arguments) in zip(recorded, calls, strict=True):
            if orjson.loads(call.arguments) != orjson.loads(arguments):
                raise self._change(f"a call of {call.name} with other arguments", self._wish)

    def _check_used_up(self) -> None:
        if self._restored.last_kept >= self.step:
            raise self._change("a further value", self._wish)
        self._check_unopened()

    def _check_unopened(self) -> None:
        if unopened := self._list_unopened():
            raise self._change(f"the begin of {unopened[0]}", self._wish)

    def _check_kept(self) -> None:
        self._raise_failure()
        kept = self._restored.kept.get(self.step, {})
        if "value" in kept:
            raise self._change(f"the value {kept['name']!r}", self._wish)

    def _raise_failure(self) -> None:
        kept = self._restored.kept.get(self.step)
        if kept is None or "failure" not in kept or self._restored.taken < kept["said"]:
            return
        raise make_failure(*kept["failure"])

    def _find_next(self) -> list[memory_pb2.LogMessage]:
        return self._restored.peek()

    def _describe_next(self) -> str:
        following = self._find_next()
        return _describe(following) if following else "a further value"

    def _change(self, recorded: str, wish: str) -> ModeChanged:
        message = f"step {self.step} of {self._where}: recorded is {recorded}, the mode's code asks for {wish}"
        self._changed = ModeChanged(message, step=self.step)
        return self._changed


def make_failure(reason: str, message: str, details: str) -> HeadraceError:
    """Return the recorded error; INTERRUPTED for a reason that this release does not know."""
    error = BY_REASON.get(reason, Interrupted)(message)
    error.metadata = orjson.loads(details) if details else {}
    return error


def _describe(following: Sequence[memory_pb2.LogMessage]) -> str:
    """Return a description of the next messages, without their content."""
    if following[0].message.role == "user":
        return "a message to the model"
    if following[-1].finish_reason != MADE:
        return "a model's answer"
    names = [piece.message.tool_calls[0].name for piece in following if piece.message.tool_calls]
    return f"a call of {', '.join(names)}" if names else "a text of the mode"


def _join_text(message: memory_pb2.LogMessage) -> str:
    return "".join(part.text for part in message.message.content)
