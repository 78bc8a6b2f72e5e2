"""Displays a run at a terminal: dim reasoning, boxed tools, plain answer, a status line on long waits.

Written text is never changed, so that scrolling back works; only the status line is erased.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console

from headrace.cli.run_view.printing import CONTROLS, describe_usage
from headrace.cli.run_view.scopes import RUN, ScopeLabel
from headrace.shown_text import isolate, make_visible
from headrace.v1 import agent_pb2

STATUS_AFTER_S = 1.0
"""Waiting time after which the status line appears."""

RESULT_LINES_MAX = 8
"""Maximum number of lines shown of a tool's result; the model gets all of it."""

INDENT = "  "

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ERASE_LINE, LINE_UP = "\r\x1b[2K", "\x1b[1A"


class TerminalView:
    """A view that must be the only writer to the console during a run."""

    is_live = True
    """Whether a person is watching."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._section = ""
        """Id of the block or call written last; empty after a notice or a result."""
        self._column = 0
        """Cells written since the last line end."""
        self._label = self._shown_label = RUN
        """Scopes of the next piece and of the last one."""
        self._budget = ""
        self._has_status = False
        self._names: dict[str, str] = {}
        """Names of calls without a result, by id."""

    def enter_scope(self, label: ScopeLabel) -> None:
        """Place all further output in this scope."""
        self._label = label

    def show_query(self, text: str, by: str = "") -> None:
        """Show a question from a chat's history; `by` is its author if several users have asked."""
        self._start_section("")
        self._write(f"{by}> {text}\n\n", "bold")

    def write_content(self, block_id: str, text: str) -> None:
        self._start_section(block_id)
        self._write(text)

    def write_reasoning(self, block_id: str, text: str) -> None:
        self._start_section(block_id)
        self._write(text, "dim")

    def write_planning(self, block_id: str, text: str) -> None:
        """Show a planner's text other than its plan."""
        self.write_reasoning(block_id, text)

    def open_call(self, call_id: str, name: str) -> None:
        self._names[call_id] = name
        self._start_section(call_id)
        self._write(f"╭─ {name}\n", "cyan")

    def write_arguments(self, call_id: str, text: str) -> None:
        self._write_in_box(call_id, isolate(make_visible(text)), "cyan")

    def close_arguments(self, call_id: str) -> None:
        if self._section == call_id:
            self._end_line()

    def write_output(self, call_id: str, text: str) -> None:
        self._write_in_box(call_id, text, "dim")

    def show_result(self, call_id: str, result: str, ok: bool) -> None:
        self._return_to_box(call_id)
        self._end_line()
        lines = result.splitlines()
        if len(lines) > RESULT_LINES_MAX:
            lines = [*lines[:RESULT_LINES_MAX], f"… {len(lines) - RESULT_LINES_MAX} more lines"]
        text = "\n   ".join(lines)
        self._write(f"╰─ {'ok' if ok else 'failed'} ", "green" if ok else "red")
        self._write(f"{text}\n")
        self._names.pop(call_id, None)
        self._section = ""

    def show_notice(self, text: str) -> None:
        self._start_section("")
        self._write(f"• {isolate(make_visible(text))}\n", "yellow")

    def show_prompt(self, text: str) -> None:
        """Show a question to the user."""
        self._start_section("")
        self._write("".join(f"? {line}\n" for line in isolate(make_visible(text)).split("\n")), "bold")

    def set_budget(self, text: str) -> None:
        self._budget = text

    def show_waiting(self, elapsed_s: float) -> None:
        """Show the time since the last event."""
        # If a line ends exactly at the edge, terminals disagree on the cursor's position.
        if elapsed_s < STATUS_AFTER_S or (self._column and self._column % self._console.width == 0):
            return
        if not self._has_status and self._column:
            self._write_codes("\n")
        self._has_status = True
        running = ", ".join(self._names.values())
        left = f" · {self._budget}" if self._budget else ""
        status = f"{SPINNER[int(elapsed_s * 8) % len(SPINNER)]} {running or 'waiting'} {elapsed_s:.0f} s{left}"
        self._write_codes(ERASE_LINE)
        self._console.out(status[: self._console.width - 1], style="dim", end="", highlight=False)

    def show_end(self, end: agent_pb2.AgentDelta) -> None:
        self._start_section("")
        if end.HasField("run_error"):
            self._write(f"✗ {end.run_error.error.code}: {end.run_error.error.message}\n", "red")
        elif end.HasField("run_cancel"):
            self._write("✗ cancelled\n", "yellow")
        usage = getattr(end, end.WhichOneof("payload") or "").usage
        if usage.model_calls:
            self._write(f"{describe_usage(usage)}\n", "dim")

    def _write_in_box(self, call_id: str, text: str, style: str) -> None:
        self._return_to_box(call_id)
        if not self._column:
            self._write("│ ", "cyan")
        body = text.removesuffix("\n")
        self._write(body.replace("\n", "\n│ "), style)
        if body != text:
            self._end_line()

    def _return_to_box(self, call_id: str) -> None:
        if self._section != call_id:
            self._start_section(call_id)
            self._write(f"├─ {self._names.get(call_id, 'tool')}\n", "cyan")

    def _start_section(self, section: str) -> None:
        if self._section != section or not section:
            self._end_line()
            self._section = section
        if self._label != self._shown_label:
            self._end_line()
            self._shown_label = self._label
            if self._label.text:
                self._write(f"▸ {self._label.text}\n", "magenta")

    def _end_line(self) -> None:
        if self._column:
            self._write("\n")

    def _write(self, text: str, style: str | None = None) -> None:
        if self._has_status:
            self._has_status = False
            back = f"{LINE_UP}\x1b[{self._column % self._console.width + 1}G" if self._column else ""
            self._write_codes(ERASE_LINE + back)
        text = self._indent(text.translate(CONTROLS))
        self._console.out(text, style=style, end="", highlight=False)
        before, _, last = text.rpartition("\n")
        self._column = cell_len(last) + (0 if before or text.startswith("\n") else self._column)

    def _indent(self, text: str) -> str:
        """Return the text with each new line indented by the depth of its scope."""
        if not (indent := INDENT * self._shown_label.depth):
            return text
        lines = text.split("\n")
        first = lines[0] if self._column or not lines[0] else indent + lines[0]
        return "\n".join([first, *(indent + line if line else "" for line in lines[1:])])

    def _write_codes(self, codes: str) -> None:
        self._console.file.write(codes)
        self._console.file.flush()
