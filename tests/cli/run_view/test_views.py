"""What both views write for the same run, and what a reader sees of a run that was cut and attached to again."""

import io
import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from headrace.cli.run_view.plain_view import PlainView
from headrace.cli.run_view.printing import describe_budget
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.terminal_view import TerminalView
from headrace.v1 import agent_pb2, common_pb2

Delta = agent_pb2.AgentDelta


def make_event(kind: str, *, subagent: str | None = None, task: str | None = None, **fields: Any) -> Delta:
    """An event of the run, or of a sub-agent or a task; `kind` is the payload's name."""
    delta = Delta(subagent_id=subagent, task_id=task)
    payload = getattr(delta, kind)
    payload.SetInParent()
    payload.MergeFrom(type(payload)(**fields))
    return delta


ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

START = make_event("content_start", content_id="c")
CALL = [
    make_event("tool_start", tool_id="t", tool_name="weather"),
    make_event("tool_args", tool_id="t", delta='{"city":'),
    make_event("tool_args", tool_id="t", delta='"Paris"}'),
    make_event("tool_end", tool_id="t"),
    make_event("tool_output", tool_id="t", delta="looking\n"),
    make_event("tool_result", tool_id="t", result="20°\nsunny", ok=True),
]


def said(text: str, block: str = "c") -> Delta:
    return make_event("content_delta", content_id=block, delta=text)


def thought(text: str) -> list[Delta]:
    start = make_event("reasoning_start", reasoning_id="r")
    return [start, make_event("reasoning_delta", reasoning_id="r", delta=text)]


def plain(events: Sequence[Delta]) -> str:
    out = io.BytesIO()
    display = RunDisplay(PlainView(out))
    for event in events:
        display.show_event(event)
    return out.getvalue().decode()


def terminal(events: Sequence[Delta], waits: float = 0.0) -> str:
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=40, color_system="standard", highlight=False))
    display = RunDisplay(view)
    for event in events:
        display.show_event(event)
        view.show_waiting(waits)
    return out.getvalue()


def test_plain_gives_the_answer_byte_for_byte_without_escape_codes() -> None:
    pieces = ["\n\n", " a", "\x1b[31m", "b\r\n", "水\u2028", "[bold]"]
    assert plain([START, *map(said, pieces), make_event("run_complete")]) == "".join(pieces) + "\n"


def test_plain_puts_each_call_on_a_line_of_its_own() -> None:
    shown = plain([*thought("Let me see."), *CALL, START, said("20°"), make_event("run_complete")])
    assert shown == '[reasoning] Let me see.\n[tool] weather({"city":"Paris"}) -> 20° sunny\n20°\n'


def test_plain_says_how_a_run_failed() -> None:
    failed = make_event("run_error", error=common_pb2.Failure(code="OVERLOADED", message="try\nlater"))
    assert plain([START, said("half"), failed]) == "half\n[failed] OVERLOADED: try later\n"
    assert plain([make_event("run_cancel")]) == "[cancelled]\n"


def test_plain_shortens_a_long_result_and_marks_a_failed_one() -> None:
    shown = plain([CALL[0], make_event("tool_result", tool_id="t", result="x" * 10_000, ok=False)])
    assert shown.startswith("[tool] weather() -> failed: xxx")
    assert shown.endswith("… (10000 characters)\n")
    assert len(shown) < 600


HIDING = make_event("tool_args", tool_id="t", delta='{"to": "DE\u202e98\u202c\u200b", "by": "אבג 1"}')
ASKED = make_event("approval_ask", approval_id="a", tool_id="t", reason="1\u202e2")


def test_arguments_and_what_is_asked_show_what_would_hide_or_move() -> None:
    events = [CALL[0], HIDING, ASKED, make_event("tool_result", tool_id="t", result="ok", ok=True)]
    shown = r'{"to": "DE\u202e98\u202c\u200b", "by": "אבג 1"}'
    assert plain(events) == f"[notice] approval is asked for: 1\\u202e2\n[tool] weather({shown}) -> ok\n"
    assert shown.replace("אבג", "\u2068אבג\u2069") in terminal(events)
    assert "1\\u202e2" in terminal(events)


def test_plain_says_how_much_of_the_arguments_is_missing() -> None:
    long = make_event("tool_args", tool_id="t", delta="x" * 10_000)
    shown = plain([CALL[0], long, make_event("tool_result", tool_id="t", result="ok", ok=True)])
    assert shown == f"[tool] weather({'x' * 500}… (9,500 more characters)) -> ok\n"


def test_terminal_shows_reasoning_dim_tools_as_boxes_and_the_answer_plain() -> None:
    shown = terminal([*thought("Hm."), *CALL, START, said("20°"), make_event("run_complete")])
    assert "\x1b[2mHm.\x1b[0m\n" in shown
    assert "╭─ weather" in shown
    assert '│ \x1b[0m\x1b[36m{"city":\x1b[0m\x1b[36m"Paris"}' in shown
    assert "╰─ ok \x1b[0m20°\n   sunny\n" in shown
    assert shown.endswith("20°\n")


def test_terminal_names_the_box_again_when_calls_interleave() -> None:
    other = make_event("tool_start", tool_id="u", tool_name="clock")
    shown = terminal([CALL[0], CALL[1], other, CALL[2], make_event("tool_result", tool_id="u", result="noon", ok=True)])
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
    snapshot = make_event("content_snapshot", content_id="c", text="Hello world")
    assert plain([START, said("Hello "), snapshot]) == "Hello world"
    assert plain([START, said("Hello world"), snapshot]) == "Hello world"


def test_a_block_that_begins_again_with_another_text_is_shown_anew() -> None:
    assert plain([START, said("Hello"), START, said("Good day")]) == "Hello\n[notice] this part begins anew\nGood day"


def test_a_call_that_comes_again_as_a_snapshot_is_shown_once() -> None:
    arguments = '{"city":"Paris"}'
    snapshot = make_event("tool_snapshot", tool_id="t", tool_name="weather", arguments=arguments)
    assert plain([*CALL[:2], snapshot, CALL[-1], snapshot, CALL[-1]]) == plain(CALL)


def test_what_a_planner_says_is_not_the_answer() -> None:
    planning = make_event("content_start", content_id="p", stage="plan", is_answer=False)
    answer = make_event("content_start", content_id="c", stage="summary", is_answer=True)
    events = [planning, said("fin", "p"), said("ish", "p"), make_event("content_end", content_id="p"), answer]
    assert plain([*events, said("THE SUMMARY")]) == "[plan] finish\nTHE SUMMARY"
    assert "\x1b[2mfin\x1b[0m\x1b[2mish\x1b[0m\nTHE SUMMARY" in terminal([*events, said("THE SUMMARY")])
    snapshot = make_event("content_snapshot", content_id="p", stage="plan", is_answer=False, text="finish")
    assert plain([snapshot, answer, said("THE SUMMARY")]) == "[plan] finish\nTHE SUMMARY"


def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    start = make_event("content_start", content_id="s", subagent="subagent-1")
    aside = make_event("content_delta", content_id="s", subagent="subagent-1", delta="aside")
    assert plain([start, aside, START, said("answer")]) == "[subagent-1] aside\nanswer"


def test_terminal_indents_what_tasks_and_sub_agents_do_under_their_names() -> None:
    task = make_event("task_start", task_id="a1", description="look around")
    child = make_event("subagent_start", subagent_id="s", parent_id="r", task="a1", agent_key="helper", goal="dig")
    start = make_event("content_start", content_id="x", subagent="s")
    within = make_event("content_delta", content_id="x", subagent="s", delta="one\ntwo")
    shown = terminal([task, child, start, within, START, said("answer")])
    assert "    ▸ helper: dig\n" in ESCAPES.sub("", shown)
    assert "    one\n    two\nanswer" in ESCAPES.sub("", shown)


def test_terminal_tells_what_a_run_has_cost_and_what_is_left() -> None:
    usage = common_pb2.Usage(input_tokens=12, output_tokens=5, model_calls=2, tool_calls=1, cost_usd=0.5)
    shown = terminal([START, said("a"), make_event("run_complete", usage=usage)])
    assert "12 tokens in, 5 out, 2 model calls, 1 tool call, $0.5000" in shown
    left = agent_pb2.BudgetLeft(model_calls=1, tool_calls=2, time_ms=3999, tokens=10, cost_usd=0.25)
    assert describe_budget(left) == "left: 1 model call, 2 tool calls, 3 s, 10 tokens, $0.2500"
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=80, color_system="standard", highlight=False))
    view.set_budget(describe_budget(left))
    view.show_waiting(2.0)
    assert "waiting 2 s · left: 1 model call" in out.getvalue()


def test_an_upload_is_told_by_its_name() -> None:
    upload = agent_pb2.Upload(type="text", name="in.csv", size_bytes=2, mime_type="text/csv")
    assert plain([make_event("request_upload", chat_id="c", upload=upload)]) == "[notice] uploaded: in.csv\n"


def test_what_several_say_at_once_is_shown_by_lines() -> None:
    def says(agent: str, step: str, text: str = "") -> Delta:
        return make_event(
            f"content_{step}", content_id=f"c{agent}", subagent=agent, **({"delta": text} if text else {})
        )

    both = [says(agent, "start") for agent in "ab"]
    words = [says(agent, "delta", f"{word} ") for word in ("one", "two\n", "three") for agent in "ab"]
    ends = [says(agent, "end") for agent in "ab"]
    assert plain([*both, *words, *ends]).splitlines() == ["[a] one two", "[b] one two", "[a]  three ", "[b]  three "]


def test_what_is_said_again_leaves_nobody_waiting_for_the_first_attempt() -> None:
    def of_child(kind: str, block: str, text: str = "") -> Delta:
        return make_event(f"content_{kind}", subagent="a", content_id=block, **({"delta": text} if text else {}))

    shown = terminal(
        [
            of_child("start", "c_1"),
            of_child("delta", "c_1", "The fir"),
            make_event("attempt_reset", subagent="a"),
            of_child("start", "c_2"),
            of_child("delta", "c_2", "The "),
            of_child("delta", "c_2", "answer"),
        ]
    )
    assert "The answer" in ESCAPES.sub("", shown), "alone, it is shown as it comes, not by lines"


def test_what_happens_to_an_open_gate_is_a_sentence() -> None:
    vote = make_event("gate_step", gate_id="g", step="vote", decision="approve", by="ada", credential="api_key:desk")
    passed_on = make_event("gate_step", gate_id="g", step="delegated", by="ada", to=["role:finance"], note="please")
    escalated = make_event("gate_step", gate_id="g", step="escalated", to=["user:bob"])
    said = plain([vote, passed_on, escalated])
    assert "vote to approve by ada\n" in said
    assert "delegated by ada (identity unproven) to role:finance: please\n" in said
    assert "escalated to user:bob\n" in said
