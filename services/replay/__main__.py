"""`python -m services.replay CASSETTE …`: replays cassettes and prints the outcome."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TextIO

import structlog

from headrace.cassette.lines import CassetteError, read_cassette
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.view import choose_view
from headrace.regular_files import read_regular_file
from services.replay.heard import Difference
from services.replay.replaying import OnEvent, describe_missing, find_refusal, replay

FILE_BYTES_MAX = 256 * 1024 * 1024

SAME, DIFFERENT, NO_CASSETTE = 0, 1, 2
"""Exit codes."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="headrace replay")
    parser.add_argument("--speed", type=float, default=0.0)
    parser.add_argument("--stop-at", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--run-modes", action="store_true")
    parser.add_argument("cassettes", nargs="+", type=Path)
    arguments = parser.parse_args()
    # The orchestrator's log lines about recorded errors would look like errors of the replay.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    codes = [_replay_file(path, arguments) for path in arguments.cassettes]
    return max(codes)


def _replay_file(path: Path, arguments: argparse.Namespace) -> int:
    try:
        cassette = read_cassette(read_regular_file(path, FILE_BYTES_MAX).splitlines())
    except (CassetteError, OSError) as error:
        _say(sys.stderr, f"{path}: {error}")
        return NO_CASSETTE
    if refusal := find_refusal(cassette, runs_modes=arguments.run_modes):
        _say(sys.stderr, f"{path}: {refusal}")
        return DIFFERENT
    shown = dict[str, OnEvent]()
    if arguments.show:
        view = choose_view()
        view.show_query(str(cassette.query.get("message", "")))
        shown = {"on_event": RunDisplay(view).show_event}
    try:
        seq = replay(cassette, speed=arguments.speed, stop_at=arguments.stop_at, **shown)
    except Difference as error:
        _say(sys.stderr, f"{path}: {error}{describe_missing(cassette)}")
        return DIFFERENT
    if not arguments.show:
        _say(sys.stdout, f"{path}: {seq} events, the same")
    return SAME


def _say(out: TextIO, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
