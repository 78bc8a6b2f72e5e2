"""Parses budgets.yaml, and says which budgets hold for a run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from headrace.v1 import memory_pb2
from services.runtime.auth.identity import Identity
from services.runtime.files.refused_files import load_yaml_model
from services.runtime.usage import NANO_PER_USD

EACH = "*"
"""A name that stands for each one by itself."""

NOBODY = " "
"""No tenant's name."""

API_KEY = "api_key:"

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class BudgetsError(Exception):
    """Lists the problems of the file, one a line, with field and rule."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Rule(_Part):
    """A limit for what is spent in a period. What a field names is limited together; `*` limits each one by itself."""

    id: Annotated[str, StringConstraints(pattern=r"^[\w.-]+$", max_length=128)]
    """Names the budget in refusals and warnings; each rule has another one."""

    period: Literal["day", "month"]
    """A day or month of the calendar, UTC; each begins with nothing spent."""

    tenant: Name = EACH
    """The tenant. Left out, or `*`: each tenant by itself."""

    user: Name | None = None
    """The user whose runs they are, or `*`. Left out, all together."""

    key: Name | None = None
    """The API key that asked, as `headrace spend --by key` names it (`api_key:…`), or `*`. Left out, all together; runs
    that were asked for without a key are under no rule for keys."""

    agent: Name | None = None
    """The agent that asked the model, of a sub-agent itself, or `*`. Left out, all together."""

    usd: Annotated[Decimal, Field(ge=0, le=1_000_000_000, decimal_places=9)] | None = None
    """Limit in US dollars, counted in billionths. Left out, none."""

    tokens: Annotated[int, Field(ge=0, le=2**62)] | None = None
    """Limit in prompt and completion tokens. Left out, none."""

    warn_at: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of the limit that is spent or reserved when webhooks are told, once in the period; 0: they are not."""

    @model_validator(mode="after")
    def _limits_something(self) -> Rule:
        if self.usd is None and self.tokens is None:
            raise ValueError("usd or tokens is needed")
        return self

    def is_for(self, identity: Identity) -> bool:
        """Return whether the rule may hold for runs of `identity`."""
        key = _find_key(identity)
        is_meant = self.tenant in (EACH, identity.tenant) and self.user in (None, EACH, identity.user)
        return is_meant and (self.key is None or (bool(key) and self.key in (EACH, key)))

    def list_budgets(self, identity: Identity, agent_keys: Collection[str]) -> Iterator[memory_pb2.SpendBudget]:
        """List what the rule is for a run of `identity` that may ask these agents: nothing if it is not for it."""
        if not self.is_for(identity):
            return
        key = _find_key(identity)
        for agent_key in [""] if self.agent is None else sorted(agent_keys):
            if self.agent in (None, EACH, agent_key):
                yield self._make_budget(identity, key, agent_key)

    def _make_budget(self, identity: Identity, key: str, agent_key: str) -> memory_pb2.SpendBudget:
        parts = {"user": (self.user, identity.user), "key": (self.key, key), "agent": (self.agent, agent_key)}
        each = [f"{name}={value}" for name, (given, value) in parts.items() if given == EACH]
        return memory_pb2.SpendBudget(
            budget_id="/".join([self.id, *each]),
            period=self.period,
            user=identity.user if self.user is not None else "",
            key=key if self.key is not None else "",
            agent_key=agent_key,
            nano_usd_max=None if self.usd is None else int(self.usd * NANO_PER_USD),
            tokens_max=self.tokens,
            warn_at=self.warn_at,
        )


def _find_key(identity: Identity) -> str:
    return identity.credential if identity.credential.startswith(API_KEY) else ""


class File(_Part):
    budgets: tuple[Rule, ...] = Field(default=(), max_length=500)
    """The budgets; all that are for a run hold for it."""

    @model_validator(mode="after")
    def _has_unique_ids(self) -> File:
        ids = [rule.id for rule in self.budgets]
        if doubled := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"two budgets have the id {doubled[0]!r}")
        return self


@dataclass(frozen=True, slots=True)
class Budgets:
    rules: tuple[Rule, ...] = ()

    @property
    def limit_money(self) -> bool:
        return any(rule.usd is not None for rule in self.rules)

    def select(self, identity: Identity, agent_keys: Collection[str]) -> list[memory_pb2.SpendBudget]:
        return [budget for rule in self.rules for budget in rule.list_budgets(identity, agent_keys)]


def write_budgets(budgets: Budgets, identity: Identity) -> str:
    """Return a file with the rules for `identity`, by which its runs go as by the whole file; empty: there is none.

    Of others' rules nothing is in it but that money is limited, which makes prices matter to every run.
    """
    rules = [rule for rule in budgets.rules if rule.is_for(identity)]
    if budgets.limit_money and not any(rule.usd is not None for rule in rules):
        rules.append(Rule(id="others", period="month", tenant=NOBODY, usd=Decimal(0)))
    if not rules:
        return ""
    return json.dumps({"budgets": [rule.model_dump(mode="json", by_alias=True, exclude_none=True) for rule in rules]})


def parse_budgets(data: bytes) -> Budgets:
    """Raises BudgetsError, with all problems."""
    try:
        return Budgets(load_yaml_model(data, File).budgets)
    except ValueError as error:
        raise BudgetsError(str(error)) from error
