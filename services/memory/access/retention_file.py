"""The file of how long chats are kept, read before each use; without one the same holds for all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.regular_files import read_regular_file
from services.runtime.files.refused_files import REFUSED_FILES

if TYPE_CHECKING:
    from services.memory.access.retention_rules import RetentionRules

FILE_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class SameForAll:
    """Every chat is kept as long."""

    days: float | None
    """None: for ever."""

    def find_days(self, tenant: str, agent_key: str) -> float | None:
        return self.days

    def find_shortest(self) -> float | None:
        return self.days


class RetentionFile:
    def __init__(self, path: Path | None, days: float | None) -> None:
        """Read `path` before each use; `days` hold for chats of which it says nothing, None: for ever."""
        self._path = path
        self._days = days

    def read(self) -> RetentionRules | SameForAll:
        """Return the rules as the file has them now; blocks.

        Raises ValueError for a bad file, and OSError: with a rule unread nothing is to be deleted.
        """
        if self._path is None:
            return SameForAll(self._days)
        # Imported only here: pydantic takes 7 MB, which a service without such a file does not need.
        from services.memory.access.retention_rules import NEVER, RetentionRules
        from services.runtime.files.refused_files import load_yaml_model

        try:
            rules = load_yaml_model(read_regular_file(self._path, FILE_BYTES_MAX), RetentionRules)
        except (ValueError, OSError):
            REFUSED_FILES.labels("retention").set(1)
            raise
        REFUSED_FILES.labels("retention").set(0)
        if rules.chat_days is not None:
            return rules
        return rules.model_copy(update={"chat_days": NEVER if self._days is None else self._days})
