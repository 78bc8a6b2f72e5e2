"""headrace.testing as its users run it: a folder with tests of agents, in a separate pytest process."""

import subprocess
import sys
from pathlib import Path

from tests.golden.__main__ import CASSETTES, EXAMPLES

CONFTEST = 'pytest_plugins = ["headrace.testing"]\n'

TESTS = """
import pytest

LOOK = {"toolCall": "mock_city_weather", "id": "call_1", "arguments": '{"city": "Oslo", "date": "2026-01-01"}'}

def test_what_an_agent_does_is_seen(headrace_suite):
    headrace_suite.play([
        {"match": {"turn": 1}, "steps": [{"reasoning": "I look."}, LOOK]},
        {"steps": [{"content": ["Take ", "a ", "coat."]}]},
    ])
    run = headrace_suite.ask("Weather?", agent="assistant")
    run.assert_completed()
    run.assert_called("mock_city_weather", city="Oslo")
    run.assert_called("mock_city_weather", times=1)
    run.assert_not_called("read_file")
    run.assert_events("run.start", "tool.start", "tool.result", "content.delta", "run.complete")
    assert run.answer == "Take a coat."
    assert len(headrace_suite.list_requests()) == 2
    with pytest.raises(AssertionError, match="mock_city_weather.*was not called: mock_city_weather.*Oslo"):
        run.assert_called("mock_city_weather", city="Rome")
    with pytest.raises(AssertionError, match="called: mock_city_weather"):
        run.assert_not_called()
    with pytest.raises(AssertionError, match="tool.start did not come in its place"):
        run.assert_events("content.delta", "tool.start")

def test_a_person_answers(headrace_suite):
    def approve(suite, event, state):
        if event.HasField("approval_ask"):
            ask = event.approval_ask
            assert suite.submit(state.run_id, {"decision": "reject"}, approval_id=ask.approval_id) == "accepted"

    run = headrace_suite.ask("Publish that the mill is open", agent="publisher", on_event=approve)
    run.assert_events("gate.open", "approval.ask", "request.submit", "gate.close", "run.complete")
    assert not run.find_calls("publish_note")[0].ok

def test_a_script_that_is_none_is_refused(headrace_suite):
    with pytest.raises(ValueError, match="steps"):
        headrace_suite.play([{"stepz": []}])

def test_a_cassette_comes_about_again(headrace_replay, tmp_path):
    cassette = CASSETTE
    headrace_replay(cassette)
    changed = tmp_path / "changed.cassette"
    changed.write_text(cassette.read_text().replace('"delta":"The "', '"delta":"A "'))
    with pytest.raises(AssertionError, match=r"line \\d+: event"):
        headrace_replay(changed)
"""


def test_the_plugin_serves_tests_of_agents(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nheadrace_config_dir = {EXAMPLES}\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    first = f"from pathlib import Path\n\nCASSETTE = Path({str(CASSETTES / 'tool.cassette')!r})\n"
    (tmp_path / "test_agents.py").write_text(first + TESTS)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    process = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path)
    assert "4 passed" in process.stdout, process.stdout + process.stderr
