"""Reads approvals.yaml at start and on change; a bad file leaves the last good rules in force."""

from __future__ import annotations

from pathlib import Path

import structlog

from headrace.regular_files import read_regular_file
from services.orchestrator.run.approvals.rules import Rules, RulesError, parse
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal

FILE_BYTES_MAX = 256 * 1024
"""Enough for some thousand rules."""

log = structlog.get_logger()


class RulesFile:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.current = Rules()
        self.text = ""
        """The file in force."""

    def reload(self) -> None:
        """Read the file; log problems, and never raise.

        Until it was good once, the built-in risks are in force: its author wants to be asked.
        """
        refused = 0
        try:
            if self.path is None or not self.path.exists():
                self.current, self.text = Rules(), ""
                return
            source = read_regular_file(self.path, FILE_BYTES_MAX)
            self.current, self.text = parse(source), source.decode()
        except (RulesError, UnicodeDecodeError, OSError) as error:
            refused = 1
            if self.current == Rules():
                self.current = parse(b"")
            report_refusal(
                "approval rules refused", file=str(self.path), problem=str(error), last_good_version_stays=True
            )
        else:
            log.info("approval rules in force", tools=len(self.current.tools), risks=len(self.current.risks))
        finally:
            REFUSED_FILES.labels("approvals").set(refused)
