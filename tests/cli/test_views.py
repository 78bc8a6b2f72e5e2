"""What both views write for the same run, and what a reader sees of a run that was cut and attached to again."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec
from rich.console import Console

from headrace.cli.blocks import Blocks
from headrace.cli.events import Event, Failure
from headrace.cli.plain import PlainView
from headrace.cli.terminal import TerminalView

START = Event("content.start", content_id="c")
CALL = [
    Event("tool.start", tool_id="t", tool_name="weather"),
    Event("tool.args", tool_id="t", delta='{"city":'),
    Event("tool.args", tool_id="t", delta='"Paris"}'),
    Event("tool.end", tool_id="t"),
    Event("tool.output", tool_id="t", delta="looking\n"),
    Event("tool.result", tool_id="t", result="20°\nsunny", ok=True),
]


def said(text: str, block: str = "c") -> Event:
    return Event("content.delta", content_id=block, delta=text)


def thought(text: str) -> Event:
    return Event("reasoning.delta", reasoning_id="r", delta=text)


def plain(events: Sequence[Event]) -> str:
    out = io.BytesIO()
    blocks = Blocks(PlainView(out))
    for event in events:
        blocks.show(event)
    return out.getvalue().decode()


def terminal(events: Sequence[Event], waits: float = 0.0) -> str:
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=40, color_system="standard", highlight=False))
    blocks = Blocks(view)
    for event in events:
        blocks.show(event)
        view.waiting(waits)
    return out.getvalue()


def test_plain_gives_the_answer_byte_for_byte_without_escape_codes() -> None:
    pieces = ["\n\n", " a", "\x1b[31m", "b\r\n", "水\u2028", "[bold]"]
    assert plain([START, *map(said, pieces), Event("run.complete")]) == "".join(pieces) + "\n"


def test_plain_puts_each_call_on_a_line_of_its_own() -> None:
    shown = plain([thought("Let me see."), *CALL, START, said("20°"), Event("run.complete")])
    assert shown == '[reasoning] Let me see.\n[tool] weather({"city":"Paris"}) -> 20° sunny\n20°\n'


def test_plain_says_how_a_run_failed() -> None:
    failed = Event("run.error", error=Failure("OVERLOADED", "try\nlater"))
    assert plain([START, said("half"), failed]) == "half\n[failed] OVERLOADED: try later\n"
    assert plain([Event("run.cancel")]) == "[cancelled]\n"


def test_plain_shortens_a_long_result_and_marks_a_failed_one() -> None:
    shown = plain([CALL[0], Event("tool.result", tool_id="t", result="x" * 10_000, ok=False)])
    assert shown.startswith("[tool] weather() -> failed: xxx")
    assert shown.endswith("… (10000 characters)\n")
    assert len(shown) < 600


def test_terminal_shows_reasoning_dim_tools_as_boxes_and_the_answer_plain() -> None:
    shown = terminal([thought("Hm."), *CALL, START, said("20°"), Event("run.complete")])
    assert "\x1b[2mHm.\x1b[0m\n" in shown
    assert "╭─ weather" in shown
    assert '│ \x1b[0m\x1b[36m{"city":\x1b[0m\x1b[36m"Paris"}' in shown
    assert "╰─ ok \x1b[0m20°\n   sunny\n" in shown
    assert shown.endswith("20°\n")


def test_terminal_names_the_box_again_when_calls_interleave() -> None:
    other = Event("tool.start", tool_id="u", tool_name="clock")
    shown = terminal([CALL[0], CALL[1], other, CALL[2], Event("tool.result", tool_id="u", result="noon")])
    assert shown.index("╭─ weather") < shown.index("╭─ clock") < shown.index("├─ weather") < shown.index("├─ clock")


def test_what_a_model_says_cannot_drive_the_terminal() -> None:
    assert terminal([START, said("a\x1b]0;evil\x07\x9b31mb\rc")]) == "a]0;evil31mbc"


def test_the_status_line_comes_on_long_waits_and_goes_without_a_trace() -> None:
    assert "waiting" not in terminal([START, said("ab")], waits=0.9)
    shown = terminal([START, said("ab"), said("cd")], waits=3.0)
    assert "waiting 3 s" in shown
    # Below the text, erased, and back behind its last character.
    assert "ab\n\r\x1b[2K" in shown
    assert "\r\x1b[2K\x1b[1A\x1b[3Gcd" in shown


def test_a_block_that_begins_again_is_not_shown_twice() -> None:
    again = [START, said("Hello wor"), said("ld")]
    assert plain([START, said("Hello "), *again]) == "Hello world"
    snapshot = Event("content.snapshot", content_id="c", text="Hello world")
    assert plain([START, said("Hello "), snapshot]) == "Hello world"
    assert plain([START, said("Hello world"), snapshot]) == "Hello world"


def test_a_block_that_begins_again_with_another_text_is_shown_anew() -> None:
    assert plain([START, said("Hello"), START, said("Good day")]) == "Hello\n[notice] this part begins anew\nGood day"


def test_a_call_that_comes_again_as_a_snapshot_is_shown_once() -> None:
    arguments = msgspec.Raw(b'{"city":"Paris"}')
    snapshot = Event("tool.snapshot", tool_id="t", tool_name="weather", arguments=arguments)
    assert plain([*CALL[:2], snapshot, CALL[-1], snapshot, CALL[-1]]) == plain(CALL)


def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    aside = Event("content.delta", content_id="s", subagent_id="subagent-1", delta="aside")
    assert plain([aside, START, said("answer")]) == "[reasoning] aside\nanswer"
