"""The approvals.yaml in force: read at start and when it changes; a bad file leaves the last good rules."""

from __future__ import annotations

from pathlib import Path

import structlog

from services.orchestrator.run.approvals.rules import Rules, RulesError, parse

FILE_BYTES_MAX = 256 * 1024
"""Enough for some thousand rules."""

log = structlog.get_logger()


class RulesFile:
    """Owned by the service; `reload` is called at start and by the watcher."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        """None when there is no file."""
        self.current = Rules()

    def reload(self) -> None:
        """Read the file again. Logs what is wrong with it; never raises.

        Whoever wrote a file wants to be asked: while it has never been good, the built-in risks are in force.
        """
        try:
            if self.path is None or not self.path.exists():
                self.current = Rules()
                return
            if self.path.stat().st_size > FILE_BYTES_MAX:
                raise RulesError(f"larger than {FILE_BYTES_MAX} bytes")
            self.current = parse(self.path.read_bytes())
        except (RulesError, OSError) as error:
            if self.current == Rules():
                self.current = parse(b"")
            log.error("approval rules refused", file=str(self.path), problem=str(error), last_good_version_stays=True)
        else:
            log.info("approval rules in force", tools=len(self.current.tools), risks=len(self.current.risks))
