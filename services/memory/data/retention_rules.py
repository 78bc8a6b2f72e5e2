"""Retention periods of chats: retention.yaml, by tenant and agent, the most specific rule first."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

NEVER = "never"

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Days: TypeAlias = Annotated[int, Field(ge=1, le=36_500, strict=True)] | Literal["never"]
"""Days after its last line that a chat is deleted, or never."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TenantRetention(_Part):
    """Rules for one tenant."""

    chat_days: Days | None = None
    """Days that its chats are kept; absent: the general rules apply."""

    agents: dict[Name, Days] = {}
    """Days by the agent key of a chat's last run."""


class RetentionRules(_Part):
    """The file. The first matching rule applies: the tenant's for the agent, the tenant's, the agent's in all tenants,
    the general one."""

    chat_days: Days | None = None
    """Days that chats are kept; absent: HEADRACE_MEMORY_CHAT_RETENTION_DAYS."""

    agents: dict[Name, Days] = {}
    """Days by agent key, in all tenants."""

    tenants: dict[Name, TenantRetention] = {}
    """Rules by tenant."""

    def find_days(self, tenant: str, agent_key: str) -> float | None:
        """Return how many days a chat is kept, by the agent of its last run; None: forever."""
        own = self.tenants.get(tenant, TenantRetention())
        for days in (own.agents.get(agent_key), own.chat_days, self.agents.get(agent_key), self.chat_days):
            if days is not None:
                return None if days == NEVER else days
        return None

    def find_shortest(self) -> float | None:
        """Return the shortest period of any rule; None: all chats are kept forever."""
        own = [rule for tenant in self.tenants.values() for rule in (tenant.chat_days, *tenant.agents.values())]
        found = [days for days in (self.chat_days, *self.agents.values(), *own) if days not in (None, NEVER)]
        return min(map(float, found), default=None)  # pyright: ignore[reportArgumentType] - words are left out above
