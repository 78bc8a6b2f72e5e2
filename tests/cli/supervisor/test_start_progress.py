"""What is heard of a service that takes long to start."""

from pathlib import Path

from headrace.cli.supervisor.error_reports import LogReader, describe_progress

SAID = """{"service":"memory","event":"settings in force","level":"info"}
no JSON
{"service":"memory","event":"indexing","chats_done":1000,"chats":40000,"level":"warning"}
{"service":"memory","event":"indexing"}
"""


def test_how_far_it_is_is_told_once(tmp_path: Path) -> None:
    log = tmp_path / "memory.log"
    log.write_text(SAID)
    lines = LogReader([log])
    assert list(describe_progress(lines)) == [], "of an earlier start"
    with log.open("a") as writing:
        writing.write(SAID)
    assert list(describe_progress(lines)) == ["memory: indexing, 1000 of 40000 chats"]
    assert list(describe_progress(lines)) == []
