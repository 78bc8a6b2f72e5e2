"""A run as plain text, for pipes, files and logs: the answer byte for byte, each tool call on one line.

No escape codes. `[tool] name(arguments) -> result` is written when the result is there, and always begins a line.
What a task or a sub-agent does begins with its name in brackets.
"""

from __future__ import annotations

from typing import BinaryIO

from headrace.cli.events import Event
from headrace.cli.lanes import MAIN, Lane

RESULT_CHARS_MAX = 500
"""A line is for reading; the whole result is in the chat."""


class PlainView:
    """Writes to one binary stream, flushed after each piece."""

    is_live = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lane = MAIN
        self._block = ""
        """The block whose text was written last; empty: none."""
        self._at_line_start = True
        self._calls: dict[str, list[str]] = {}
        """Name and argument pieces of calls without a result yet."""

    def enter(self, lane: Lane) -> None:
        self._lane = lane

    def query(self, text: str) -> None:
        self._line(f"> {text}")

    def content(self, block_id: str, text: str) -> None:
        self._turn_to(block_id, self._label)
        self._write(text)

    def reasoning(self, block_id: str, text: str) -> None:
        self._turn_to(block_id, f"{self._label}[reasoning] ")
        self._write(text)

    def tool_started(self, tool_id: str, name: str) -> None:
        self._calls[tool_id] = [name]

    def tool_arguments(self, tool_id: str, text: str) -> None:
        self._calls.setdefault(tool_id, ["tool"]).append(text)

    def tool_ended(self, tool_id: str) -> None:
        pass

    def tool_output(self, tool_id: str, text: str) -> None:
        pass

    def tool_result(self, tool_id: str, result: str, ok: bool) -> None:
        name, *arguments = self._calls.pop(tool_id, ["tool"])
        outcome = "" if ok else "failed: "
        self._line(f"{self._label}[tool] {name}({_one_line(''.join(arguments))}) -> {outcome}{_one_line(result)}")

    def notice(self, text: str) -> None:
        self._line(f"{self._label}[notice] {_one_line(text)}")

    def ask(self, prompt: str) -> None:
        self._line("\n".join(f"? {line}" for line in prompt.splitlines()))

    def left(self, text: str) -> None:
        pass

    def waiting(self, elapsed_s: float) -> None:
        pass

    def ended(self, event: Event) -> None:
        if not self._at_line_start:
            self._write("\n")
        if event.type == "run.error":
            self._line(f"[failed] {event.error.code}: {_one_line(event.error.message)}")
        elif event.type == "run.cancel":
            self._line("[cancelled]")

    @property
    def _label(self) -> str:
        """Before what a task or a sub-agent does."""
        return f"[{self._lane.label}] " if self._lane.label else ""

    def _turn_to(self, block_id: str, prefix: str) -> None:
        if self._block != block_id:
            self._block = block_id
            self._write(prefix if self._at_line_start else f"\n{prefix}")

    def _line(self, text: str) -> None:
        self._write(f"{text}\n" if self._at_line_start else f"\n{text}\n")
        self._block = ""

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text.encode())
            self._out.flush()
            self._at_line_start = text.endswith("\n")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= RESULT_CHARS_MAX else f"{line[:RESULT_CHARS_MAX]}… ({len(text)} characters)"
