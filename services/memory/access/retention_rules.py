"""How long chats are kept: retention.yaml, by tenant and agent, the most specific rule first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from headrace.regular_files import read_regular_file
from services.runtime.refused_files import REFUSED_FILES
from services.runtime.yaml_model import load_yaml_model

FILE_BYTES_MAX = 256 * 1024

NEVER = "never"

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Days: TypeAlias = Annotated[int, Field(ge=1, le=36_500, strict=True)] | Literal["never"]
"""Days after its last line that a chat is deleted, or never."""

log = structlog.get_logger()


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TenantRetention(_Part):
    """What holds for one tenant."""

    chat_days: Days | None = None
    """Days that its chats are kept; absent: as the file says for all."""

    agents: dict[Name, Days] = {}
    """Days by agent key, for chats whose last run was of that agent."""


class RetentionRules(_Part):
    """The file. Of the rules for a chat the first holds: its tenant's for the agent, its tenant's, the agent's of all
    tenants, the one of all chats."""

    chat_days: Days | None = None
    """Days that chats are kept; absent: HEADRACE_MEMORY_CHAT_RETENTION_DAYS."""

    agents: dict[Name, Days] = {}
    """Days by agent key, in all tenants."""

    tenants: dict[Name, TenantRetention] = {}
    """Rules by tenant."""

    @classmethod
    def for_all(cls, days: float | None) -> RetentionRules:
        """Make the rules that keep every chat for `days`; None: for ever."""
        return cls.model_construct(chat_days=NEVER if days is None else days, agents={}, tenants={})

    def find_days(self, tenant: str, agent_key: str) -> float | None:
        """Return how long a chat is kept whose last run was of this agent; None: for ever."""
        own = self.tenants.get(tenant, TenantRetention())
        for days in (own.agents.get(agent_key), own.chat_days, self.agents.get(agent_key), self.chat_days):
            if days is not None:
                return None if days == NEVER else days
        return None

    def find_shortest(self) -> float | None:
        """Return the shortest time for which any chat may be kept; None: all are, for ever."""
        own = [rule for tenant in self.tenants.values() for rule in (tenant.chat_days, *tenant.agents.values())]
        found = [days for days in (self.chat_days, *self.agents.values(), *own) if days not in (None, NEVER)]
        return min(map(float, found), default=None)  # pyright: ignore[reportArgumentType] - words are left out above


class RetentionFile:
    def __init__(self, path: Path | None, days: float | None) -> None:
        """Read `path` before each use; `days` hold for chats of which it says nothing, None: for ever."""
        self._path = path
        self._days = days

    def read(self) -> RetentionRules:
        """Return the rules as the file has them now; blocks.

        Raises ValueError for a bad file, and OSError: with a rule unread nothing is to be deleted.
        """
        if self._path is None:
            return RetentionRules.for_all(self._days)
        try:
            rules = load_yaml_model(read_regular_file(self._path, FILE_BYTES_MAX), RetentionRules)
        except (ValueError, OSError):
            REFUSED_FILES.labels("retention").set(1)
            raise
        REFUSED_FILES.labels("retention").set(0)
        default = rules.chat_days if rules.chat_days is not None else RetentionRules.for_all(self._days).chat_days
        return rules.model_copy(update={"chat_days": default})
