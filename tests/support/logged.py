"""Lines logged during a test, by us and by libraries."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

GRPCIOS_POLLER = "PollerCompletionQueue._handle_events"
"""A callback of grpcio, which has one for all loops of a process: it fails in a test for the closed loop of another."""


@dataclass(frozen=True, slots=True)
class Logged:
    """Lines logged since the test started."""

    lines: list[structlog.typing.EventDict]
    library: pytest.LogCaptureFixture

    def named(self, event: str) -> list[structlog.typing.EventDict]:
        return [line for line in self.lines if line["event"] == event]

    @property
    def done(self) -> structlog.typing.EventDict:
        """The one line of the one RPC."""
        (line,) = self.named("rpc done")
        return line

    @property
    def errors(self) -> list[Any]:
        ours = [line for line in self.lines if line["log_level"] not in ("debug", "info")]
        theirs = [record for record in self.library.records if record.levelno >= logging.WARNING]
        return [entry for entry in (*ours, *theirs) if GRPCIOS_POLLER not in str(entry)]

    def take_errors(self) -> list[Any]:
        """Those that the test expects: they are forgotten."""
        errors = self.errors
        self.lines.clear()
        self.library.clear()
        return errors
