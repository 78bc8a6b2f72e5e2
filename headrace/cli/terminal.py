"""A run at a terminal: reasoning dim, tools as boxes, the answer plain, a status line on long waits. What a task or a
sub-agent does is indented, under its name.

Everything is written where it belongs the moment it comes, and stays: no screen is redrawn, so that scrolling back
works. Only the status line is erased, and the cursor put back to where the text goes on.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console

from headrace.cli.events import Event
from headrace.cli.lanes import MAIN, Lane

STATUS_AFTER_S = 1.0
"""A shorter wait needs no words."""

RESULT_LINES_MAX = 8
"""Of a tool's result; the model gets all of it, a person the gist."""

INDENT = "  "
"""Of each level below the run itself."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ERASE_LINE, LINE_UP = "\r\x1b[2K", "\x1b[1A"

# What a model or a tool says must not drive the terminal.
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


class TerminalView:
    """Owns the terminal while a run is shown."""

    is_live = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._section = ""
        """The block or tool that was written last; empty: none."""
        self._column = 0
        """Cells since the last line end."""
        self._lane = self._shown_lane = MAIN
        """Where the next piece belongs, and where the last one did."""
        self._left = ""
        """Of the budget."""
        self._has_status = False
        self._names: dict[str, str] = {}
        """Names of the tools without a result yet."""

    def enter(self, lane: Lane) -> None:
        self._lane = lane

    def query(self, text: str) -> None:
        self._turn_to("")
        self._write(f"> {text}\n\n", "bold")

    def content(self, block_id: str, text: str) -> None:
        self._turn_to(block_id)
        self._write(text)

    def reasoning(self, block_id: str, text: str) -> None:
        self._turn_to(block_id)
        self._write(text, "dim")

    def tool_started(self, tool_id: str, name: str) -> None:
        self._names[tool_id] = name
        self._turn_to(tool_id)
        self._write(f"╭─ {name}\n", "cyan")

    def tool_arguments(self, tool_id: str, text: str) -> None:
        self._in_box(tool_id, text, "cyan")

    def tool_ended(self, tool_id: str) -> None:
        if self._section == tool_id:
            self._end_line()

    def tool_output(self, tool_id: str, text: str) -> None:
        self._in_box(tool_id, text, "dim")

    def tool_result(self, tool_id: str, result: str, ok: bool) -> None:
        self._back_to_box(tool_id)
        self._end_line()
        lines = result.splitlines()
        if len(lines) > RESULT_LINES_MAX:
            lines = [*lines[:RESULT_LINES_MAX], f"… {len(lines) - RESULT_LINES_MAX} more lines"]
        text = "\n   ".join(lines)
        self._write(f"╰─ {'ok' if ok else 'failed'} ", "green" if ok else "red")
        self._write(f"{text}\n")
        self._names.pop(tool_id, None)
        self._section = ""

    def notice(self, text: str) -> None:
        self._turn_to("")
        self._write(f"• {text}\n", "yellow")

    def ask(self, prompt: str) -> None:
        self._turn_to("")
        self._write("".join(f"? {line}\n" for line in prompt.splitlines()), "bold")

    def left(self, text: str) -> None:
        self._left = text

    def waiting(self, elapsed_s: float) -> None:
        # A line that ends exactly at the edge leaves the cursor in a place that terminals disagree on.
        if elapsed_s < STATUS_AFTER_S or (self._column and self._column % self._console.width == 0):
            return
        if not self._has_status and self._column:
            self._escape("\n")
        self._has_status = True
        running = ", ".join(self._names.values())
        left = f" · {self._left}" if self._left else ""
        status = f"{SPINNER[int(elapsed_s * 8) % len(SPINNER)]} {running or 'waiting'} {elapsed_s:.0f} s{left}"
        self._escape(ERASE_LINE)
        self._console.out(status[: self._console.width - 1], style="dim", end="", highlight=False)

    def ended(self, event: Event) -> None:
        self._turn_to("")
        if event.type == "run.error":
            self._write(f"✗ {event.error.code}: {event.error.message}\n", "red")
        elif event.type == "run.cancel":
            self._write("✗ cancelled\n", "yellow")
        if event.usage.model_calls:
            self._write(f"{event.usage.words}\n", "dim")

    def _in_box(self, tool_id: str, text: str, style: str) -> None:
        self._back_to_box(tool_id)
        if not self._column:
            self._write("│ ", "cyan")
        body = text.removesuffix("\n")
        self._write(body.replace("\n", "\n│ "), style)
        if body != text:
            self._end_line()

    def _back_to_box(self, tool_id: str) -> None:
        if self._section != tool_id:
            self._turn_to(tool_id)
            self._write(f"├─ {self._names.get(tool_id, 'tool')}\n", "cyan")

    def _turn_to(self, section: str) -> None:
        if self._section != section or not section:
            self._end_line()
            self._section = section
        if self._lane != self._shown_lane:
            self._end_line()
            self._shown_lane = self._lane
            if self._lane.label:
                self._write(f"▸ {self._lane.label}\n", "magenta")

    def _end_line(self) -> None:
        if self._column:
            self._write("\n")

    def _write(self, text: str, style: str | None = None) -> None:
        self._clear_status()
        text = self._indented(text.translate(_CONTROLS))
        self._console.out(text, style=style, end="", highlight=False)
        before, _, last = text.rpartition("\n")
        self._column = cell_len(last) + (0 if before or text.startswith("\n") else self._column)

    def _indented(self, text: str) -> str:
        """The text as it stands in its lane: each line behind what is written before it."""
        if not (indent := INDENT * self._shown_lane.depth):
            return text
        lines = text.split("\n")
        first = lines[0] if self._column or not lines[0] else indent + lines[0]
        return "\n".join([first, *(indent + line if line else "" for line in lines[1:])])

    def _clear_status(self) -> None:
        if self._has_status:
            self._has_status = False
            back = f"{LINE_UP}\x1b[{self._column % self._console.width + 1}G" if self._column else ""
            self._escape(ERASE_LINE + back)

    def _escape(self, codes: str) -> None:
        self._console.file.write(codes)
        self._console.file.flush()
