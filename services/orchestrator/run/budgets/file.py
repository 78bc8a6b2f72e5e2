"""Reads budgets.yaml at start and on change; a bad file leaves the last good rules in force."""

from __future__ import annotations

from pathlib import Path

import structlog

from headrace.errors import Overloaded
from headrace.regular_files import read_regular_file
from services.orchestrator.run.budgets.rules import Budgets, BudgetsError, parse_budgets
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal

FILE_BYTES_MAX = 256 * 1024

log = structlog.get_logger()


class BudgetsFile:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._budgets: Budgets | None = Budgets()

    @property
    def current(self) -> Budgets:
        """Return the rules in force.

        Raises:
            Overloaded: The file was never good: its author wants limits.
        """
        if self._budgets is None:
            raise Overloaded("budgets.yaml has been refused since the start; the orchestrator's log says what is wrong")
        return self._budgets

    @property
    def is_good(self) -> bool:
        """Whether there are rules in force, be it none."""
        return self._budgets is not None

    def reload(self) -> None:
        """Read the file; log problems, and never raise."""
        try:
            if self._path is None or not self._path.exists():
                self._budgets = Budgets()
            else:
                self._budgets = parse_budgets(read_regular_file(self._path, FILE_BYTES_MAX))
        except (BudgetsError, OSError) as error:
            if self._budgets is None or not self._budgets.rules:
                self._budgets = None
            REFUSED_FILES.labels("budgets").set(1)
            report_refusal("budgets refused", file=str(self._path), problem=str(error), last_good_version_stays=True)
        else:
            REFUSED_FILES.labels("budgets").set(0)
            log.info("budgets in force", budgets=len(self._budgets.rules))
