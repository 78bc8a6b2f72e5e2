"""Displays a run as plain text without escape codes: the answer byte for byte, each tool call on one line.

A call, `[tool] name(arguments) -> result`, is written once it has a result. Lines of a task or sub-agent start
with its name in brackets.
"""

from __future__ import annotations

from typing import BinaryIO

from headrace.cli.run_view.printing import show_text
from headrace.cli.run_view.scopes import RUN, ScopeLabel
from headrace.shown_text import shorten_line
from headrace.v1 import agent_pb2

RESULT_CHARS_MAX = 500
"""Length at which a result is cut for display; the chat keeps all of it."""


class PlainView:
    is_live = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._label = RUN
        self._block = ""
        """Id of the block written last; empty after any other output."""
        self._at_line_start = True
        self._calls: dict[str, list[str]] = {}
        """Name and arguments of each call without a result."""

    def enter_scope(self, label: ScopeLabel) -> None:
        self._label = label

    def show_query(self, text: str, by: str = "") -> None:
        self._write_line(f"{by}> {text}")

    def write_content(self, block_id: str, text: str) -> None:
        self._start_block(block_id, self._prefix)
        self._write(text)

    def write_reasoning(self, block_id: str, text: str) -> None:
        self._start_block(block_id, f"{self._prefix}[reasoning] ")
        self._write(text)

    def write_planning(self, block_id: str, text: str) -> None:
        self._start_block(block_id, f"{self._prefix}[plan] ")
        self._write(text)

    def open_call(self, call_id: str, name: str) -> None:
        self._calls[call_id] = [name]

    def write_arguments(self, call_id: str, text: str) -> None:
        self._calls.setdefault(call_id, ["tool"]).append(text)

    def close_arguments(self, call_id: str) -> None:
        pass

    def write_output(self, call_id: str, text: str) -> None:
        pass

    def show_result(self, call_id: str, result: str, ok: bool) -> None:
        name, *arguments = self._calls.pop(call_id, ["tool"])
        outcome = "" if ok else "failed: "
        called = show_text(f"{name}({shorten_line(''.join(arguments), RESULT_CHARS_MAX)})")
        self._write_line(f"{self._prefix}[tool] {called} -> {outcome}{_join_lines(result)}")

    def show_notice(self, text: str) -> None:
        self._write_line(f"{self._prefix}[notice] {show_text(shorten_line(text, RESULT_CHARS_MAX))}")

    def show_prompt(self, text: str) -> None:
        self._write_line("\n".join(f"? {line}" for line in show_text(text).split("\n")))

    def set_budget(self, text: str) -> None:
        pass

    def show_waiting(self, elapsed_s: float) -> None:
        pass

    def show_end(self, end: agent_pb2.AgentDelta) -> None:
        if not self._at_line_start:
            self._write("\n")
        if end.HasField("run_error"):
            error = end.run_error.error
            self._write_line(f"[failed] {error.code}: {_join_lines(error.message)}")
        elif end.HasField("run_cancel"):
            self._write_line("[cancelled]")

    @property
    def _prefix(self) -> str:
        """Return the prefix with the name of the task or sub-agent; empty for the run itself."""
        return f"[{self._label.text}] " if self._label.text else ""

    def _start_block(self, block_id: str, prefix: str) -> None:
        if self._block != block_id:
            self._block = block_id
            self._write(prefix if self._at_line_start else f"\n{prefix}")

    def _write_line(self, text: str) -> None:
        self._write(f"{text}\n" if self._at_line_start else f"\n{text}\n")
        self._block = ""

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text.encode())
            self._out.flush()
            self._at_line_start = text.endswith("\n")


def _join_lines(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= RESULT_CHARS_MAX else f"{line[:RESULT_CHARS_MAX]}… ({len(text)} characters)"
