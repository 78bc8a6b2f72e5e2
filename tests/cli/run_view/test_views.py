"""The output of both views for the same run, also when the run is cut and attached to again."""

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
    """Return an event of the run, a sub-agent or a task; `kind` is the payload's name."""
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


def content_delta(text: str, block: str = "c") -> Delta:
    return make_event("content_delta", content_id=block, delta=text)


def reasoning_events(text: str) -> list[Delta]:
    start = make_event("reasoning_start", reasoning_id="r")
    return [start, make_event("reasoning_delta", reasoning_id="r", delta=text)]


def render_plain(events: Sequence[Delta]) -> str:
    out = io.BytesIO()
    display = RunDisplay(PlainView(out))
    for event in events:
        display.show_event(event)
    return out.getvalue().decode()


def render_terminal(events: Sequence[Delta], waits: float = 0.0) -> str:
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=40, color_system="standard", highlight=False))
    display = RunDisplay(view)
    for event in events:
        display.show_event(event)
        view.show_waiting(waits)
    return out.getvalue()


def test_plain_writes_the_answer_unchanged_without_escape_codes() -> None:
    pieces = ["\n\n", " a", "\x1b[31m", "b\r\n", "水\u2028", "[bold]"]
    assert render_plain([START, *map(content_delta, pieces), make_event("run_complete")]) == "".join(pieces) + "\n"


def test_plain_puts_each_call_on_a_line_of_its_own() -> None:
    shown = render_plain(
        [*reasoning_events("Let me see."), *CALL, START, content_delta("20°"), make_event("run_complete")]
    )
    assert shown == '[reasoning] Let me see.\n[tool] weather({"city":"Paris"}) -> 20° sunny\n20°\n'


def test_plain_says_how_a_run_failed_or_that_it_was_cancelled() -> None:
    failed = make_event("run_error", error=common_pb2.Failure(code="OVERLOADED", message="try\nlater"))
    assert render_plain([START, content_delta("half"), failed]) == "half\n[failed] OVERLOADED: try later\n"
    assert render_plain([make_event("run_cancel")]) == "[cancelled]\n"


def test_plain_shortens_a_long_result_and_marks_a_failed_one() -> None:
    shown = render_plain([CALL[0], make_event("tool_result", tool_id="t", result="x" * 10_000, ok=False)])
    assert shown.startswith("[tool] weather() -> failed: xxx")
    assert shown.endswith("… (10000 characters)\n")
    assert len(shown) < 600


HIDING = make_event("tool_args", tool_id="t", delta='{"to": "DE\u202e98\u202c\u200b", "by": "אבג 1"}')
ASKED = make_event("approval_ask", approval_id="a", tool_id="t", reason="1\u202e2")


def test_arguments_and_reasons_escape_hiding_and_reordering_characters() -> None:
    events = [CALL[0], HIDING, ASKED, make_event("tool_result", tool_id="t", result="ok", ok=True)]
    shown = r'{"to": "DE\u202e98\u202c\u200b", "by": "אבג 1"}'
    assert render_plain(events) == f"[notice] approval is asked for: 1\\u202e2\n[tool] weather({shown}) -> ok\n"
    assert shown.replace("אבג", "\u2068אבג\u2069") in render_terminal(events)
    assert "1\\u202e2" in render_terminal(events)


def test_plain_says_how_much_of_long_arguments_is_omitted() -> None:
    long = make_event("tool_args", tool_id="t", delta="x" * 10_000)
    shown = render_plain([CALL[0], long, make_event("tool_result", tool_id="t", result="ok", ok=True)])
    assert shown == f"[tool] weather({'x' * 500}… (9,500 more characters)) -> ok\n"


def test_terminal_shows_reasoning_dim_tools_as_boxes_and_the_answer_plain() -> None:
    shown = render_terminal([*reasoning_events("Hm."), *CALL, START, content_delta("20°"), make_event("run_complete")])
    assert "\x1b[2mHm.\x1b[0m\n" in shown
    assert "╭─ weather" in shown
    assert '│ \x1b[0m\x1b[36m{"city":\x1b[0m\x1b[36m"Paris"}' in shown
    assert "╰─ ok \x1b[0m20°\n   sunny\n" in shown
    assert shown.endswith("20°\n")


def test_terminal_repeats_a_boxs_name_when_calls_interleave() -> None:
    other = make_event("tool_start", tool_id="u", tool_name="clock")
    shown = render_terminal(
        [CALL[0], CALL[1], other, CALL[2], make_event("tool_result", tool_id="u", result="noon", ok=True)]
    )
    assert shown.index("╭─ weather") < shown.index("╭─ clock") < shown.index("├─ weather") < shown.index("├─ clock")


def test_control_sequences_of_a_model_are_removed() -> None:
    assert render_terminal([START, content_delta("a\x1b]0;evil\x07\x9b31mb\rc")]) == "a]0;evil31mbc"


def test_the_status_line_appears_on_long_waits_and_is_erased() -> None:
    assert "waiting" not in render_terminal([START, content_delta("ab")], waits=0.9)
    shown = render_terminal([START, content_delta("ab"), content_delta("cd")], waits=3.0)
    assert "waiting 3 s" in shown
    # Below the text, erased, and then the cursor returns to the end of the text.
    assert "ab\n\r\x1b[2K" in shown
    assert "\r\x1b[2K\x1b[1A\x1b[3Gcd" in shown


def test_a_block_that_is_sent_again_is_shown_once() -> None:
    repetition = [START, content_delta("Hello wor"), content_delta("ld")]
    assert render_plain([START, content_delta("Hello "), *repetition]) == "Hello world"
    snapshot = make_event("content_snapshot", content_id="c", text="Hello world")
    assert render_plain([START, content_delta("Hello "), snapshot]) == "Hello world"
    assert render_plain([START, content_delta("Hello world"), snapshot]) == "Hello world"


def test_a_block_sent_again_with_another_text_is_shown_again() -> None:
    assert (
        render_plain([START, content_delta("Hello"), START, content_delta("Good day")])
        == "Hello\n[notice] this part begins anew\nGood day"
    )


def test_a_call_sent_again_as_a_snapshot_is_shown_once() -> None:
    arguments = '{"city":"Paris"}'
    snapshot = make_event("tool_snapshot", tool_id="t", tool_name="weather", arguments=arguments)
    assert render_plain([*CALL[:2], snapshot, CALL[-1], snapshot, CALL[-1]]) == render_plain(CALL)


def test_the_planners_text_is_labelled_as_not_the_answer() -> None:
    planning = make_event("content_start", content_id="p", stage="plan", is_answer=False)
    answer = make_event("content_start", content_id="c", stage="summary", is_answer=True)
    events = [
        planning,
        content_delta("fin", "p"),
        content_delta("ish", "p"),
        make_event("content_end", content_id="p"),
        answer,
    ]
    assert render_plain([*events, content_delta("THE SUMMARY")]) == "[plan] finish\nTHE SUMMARY"
    assert "\x1b[2mfin\x1b[0m\x1b[2mish\x1b[0m\nTHE SUMMARY" in render_terminal([*events, content_delta("THE SUMMARY")])
    snapshot = make_event("content_snapshot", content_id="p", stage="plan", is_answer=False, text="finish")
    assert render_plain([snapshot, answer, content_delta("THE SUMMARY")]) == "[plan] finish\nTHE SUMMARY"


def test_a_sub_agents_text_is_labelled_as_not_the_answer() -> None:
    start = make_event("content_start", content_id="s", subagent="subagent-1")
    aside = make_event("content_delta", content_id="s", subagent="subagent-1", delta="aside")
    assert render_plain([start, aside, START, content_delta("answer")]) == "[subagent-1] aside\nanswer"


def test_terminal_indents_output_of_tasks_and_sub_agents_under_their_names() -> None:
    task = make_event("task_start", task_id="a1", description="look around")
    child = make_event("subagent_start", subagent_id="s", parent_id="r", task="a1", agent_key="helper", goal="dig")
    start = make_event("content_start", content_id="x", subagent="s")
    within = make_event("content_delta", content_id="x", subagent="s", delta="one\ntwo")
    shown = render_terminal([task, child, start, within, START, content_delta("answer")])
    assert "    ▸ helper: dig\n" in ESCAPES.sub("", shown)
    assert "    one\n    two\nanswer" in ESCAPES.sub("", shown)


def test_terminal_shows_a_runs_usage_and_the_remaining_budget() -> None:
    usage = common_pb2.Usage(input_tokens=12, output_tokens=5, model_calls=2, tool_calls=1, cost_usd=0.5)
    shown = render_terminal([START, content_delta("a"), make_event("run_complete", usage=usage)])
    assert "12 tokens in, 5 out, 2 model calls, 1 tool call, $0.5000" in shown
    left = agent_pb2.BudgetLeft(model_calls=1, tool_calls=2, time_ms=3999, tokens=10, cost_usd=0.25)
    assert describe_budget(left) == "left: 1 model call, 2 tool calls, 3 s, 10 tokens, $0.2500"
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=80, color_system="standard", highlight=False))
    view.set_budget(describe_budget(left))
    view.show_waiting(2.0)
    assert "waiting 2 s · left: 1 model call" in out.getvalue()


def test_an_upload_is_shown_by_its_name() -> None:
    upload = agent_pb2.Upload(type="text", name="in.csv", size_bytes=2, mime_type="text/csv")
    assert render_plain([make_event("request_upload", chat_id="c", upload=upload)]) == "[notice] uploaded: in.csv\n"


def test_simultaneous_output_of_sub_agents_is_shown_line_by_line() -> None:
    def says(agent: str, step: str, text: str = "") -> Delta:
        return make_event(
            f"content_{step}", content_id=f"c{agent}", subagent=agent, **({"delta": text} if text else {})
        )

    both = [says(agent, "start") for agent in "ab"]
    words = [says(agent, "delta", f"{word} ") for word in ("one", "two\n", "three") for agent in "ab"]
    ends = [says(agent, "end") for agent in "ab"]
    assert render_plain([*both, *words, *ends]).splitlines() == [
        "[a] one two",
        "[b] one two",
        "[a]  three ",
        "[b]  three ",
    ]


def test_after_a_reset_the_new_attempt_is_shown_delta_by_delta() -> None:
    def of_child(kind: str, block: str, text: str = "") -> Delta:
        return make_event(f"content_{kind}", subagent="a", content_id=block, **({"delta": text} if text else {}))

    shown = render_terminal(
        [
            of_child("start", "c_1"),
            of_child("delta", "c_1", "The fir"),
            make_event("attempt_reset", subagent="a"),
            of_child("start", "c_2"),
            of_child("delta", "c_2", "The "),
            of_child("delta", "c_2", "answer"),
        ]
    )
    assert "The answer" in ESCAPES.sub("", shown), "a single writer is shown delta by delta, not by lines"


def test_each_step_of_a_gate_is_shown_as_a_sentence() -> None:
    vote = make_event("gate_step", gate_id="g", step="vote", decision="approve", by="ada", credential="api_key:desk")
    delegated = make_event("gate_step", gate_id="g", step="delegated", by="ada", to=["role:finance"], note="please")
    escalated = make_event("gate_step", gate_id="g", step="escalated", to=["user:bob"])
    output = render_plain([vote, delegated, escalated])
    assert "vote to approve by ada\n" in output
    assert "delegated by ada (identity unproven) to role:finance: please\n" in output
    assert "escalated to user:bob\n" in output
