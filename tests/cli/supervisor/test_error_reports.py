"""Reading logs while they are written, to report their errors."""

import json
from pathlib import Path

import pytest

from headrace.cli.supervisor.error_reports import ErrorReports, LogReader, describe_log_error, describe_progress

REFUSED = {"level": "error", "event": "agent file refused", "file": "a.json", "problem": "mode: is required"}


def line(**facts: object) -> str:
    return json.dumps(REFUSED | facts) + "\n"


def test_an_error_is_reported_once_and_only_when_its_line_is_complete(tmp_path: Path) -> None:
    log, other = tmp_path / "orchestrator.log", tmp_path / "memory.log"
    log.write_text(line(file="of an earlier start.json"))
    complaints = ErrorReports([log, other])
    assert list(complaints.read_errors()) == []
    with log.open("a") as writing:
        writing.write(line(level="info") + line()[:-5])
        writing.flush()
        assert list(complaints.read_errors()) == []
        writing.write(line()[-5:])
    assert list(complaints.read_errors()) == [
        f"orchestrator: agent file refused: a.json: mode: is required (log: {tmp_path}/orchestrator.log)"
    ]
    assert list(complaints.read_errors()) == []
    other.write_text(line(file="b.json"))
    assert len(list(complaints.read_errors())) == 1


def test_a_truncated_log_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "memory.log"
    log.write_text(line() * 3)
    complaints = ErrorReports([log])
    log.write_text(line())
    assert len(list(complaints.read_errors())) == 1
    log.unlink()
    assert list(complaints.read_errors()) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"level": "warning"}, None),
        ({"level": "warning", "event": "event loop busy", "problem": "97 % of its core"}, ": 97 % of its core"),
        ({"level": "error", "event": "provider file refused", "problems": ["a: b", "c: d"]}, ": a: b; c: d"),
        (
            {"level": "error", "event": "mcp server refused", "file": "mcp.json", "server": "a", "problem": "b\nc"},
            ": mcp.json: a: b; c",
        ),
        ({"level": "critical", "event": "rpc failed", "exception": [{"exc_type": "KeyError"}]}, ": KeyError"),
        ({"level": "error", "event": "no\nsandbox"}, ""),
    ],
)
def test_a_log_error_is_described_in_words(entry: dict[str, object], words: str | None) -> None:
    expected = None if words is None else " ".join(str(entry["event"]).split()) + words
    assert describe_log_error(json.dumps(entry)) == expected
    assert describe_log_error("{not JSON") is describe_log_error("[]") is None


SAID = """{"service":"memory","event":"settings in force","level":"info"}
no JSON
{"service":"memory","event":"indexing","chats_done":1000,"chats":40000,"level":"warning"}
{"service":"memory","event":"indexing"}
"""


def test_progress_is_reported_once(tmp_path: Path) -> None:
    log = tmp_path / "memory.log"
    log.write_text(SAID)
    lines = LogReader([log])
    assert list(describe_progress(lines)) == [], "lines of an earlier start are skipped"
    with log.open("a") as writing:
        writing.write(SAID)
    assert list(describe_progress(lines)) == ["memory: indexing, 1000 of 40000 chats"]
    assert list(describe_progress(lines)) == []
