"""Budgets of tenants, users, API keys and agents: budgets.yaml, and a run's share, which memory grants.

The file is read at start and on change; a bad file leaves the last good rules in force.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from headrace.errors import Overloaded
from headrace.regular_files import read_regular_file
from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator.peers.models import CallNeeds
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import Identity
from services.runtime.files.refused_files import REFUSED_FILES, load_yaml_model, report_refusal
from services.runtime.usage import NANO_PER_USD, to_nano_usd

log = structlog.get_logger()


EACH = "*"
"""Name that means each separately."""

NOBODY = " "
"""No tenant's name."""

API_KEY = "api_key:"

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class BudgetsError(Exception):
    """Lists the problems of the file, one per line, with field and rule."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Rule(_Part):
    """A limit on spending in a period. A named value limits all its spending together; `*` limits each value
    separately."""

    id: Annotated[str, StringConstraints(pattern=r"^[\w.-]+$", max_length=128)]
    """Name of the budget in refusals and warnings; unique among the rules."""

    period: Literal["day", "month"]
    """A calendar day or month in UTC; spending starts at zero in each."""

    tenant: Name = EACH
    """The tenant. Left out, or `*`: each tenant separately."""

    user: Name | None = None
    """The user who owns the runs, or `*`. Left out, all users together."""

    key: Name | None = None
    """The API key that started the runs, as `headrace spend --by key` prints it (`api_key:…`), or `*`. Left out, all
    together. Rules for keys do not apply to runs started without a key."""

    agent: Name | None = None
    """The agent that called the model, or `*`; a sub-agent counts as itself. Left out, all together."""

    usd: Annotated[Decimal, Field(ge=0, le=1_000_000_000, decimal_places=9)] | None = None
    """Limit in US dollars, counted in billionths. Left out, no limit."""

    tokens: Annotated[int, Field(ge=0, le=2**62)] | None = None
    """Limit in input and output tokens. Left out, no limit."""

    warn_at: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of the limit, spent or reserved, at which webhooks are called, once a period; 0: never."""

    @model_validator(mode="after")
    def _limits_something(self) -> Rule:
        if self.usd is None and self.tokens is None:
            raise ValueError("usd or tokens is needed")
        return self

    def is_for(self, identity: Identity) -> bool:
        """Return whether the rule may apply to runs of `identity`."""
        key = _find_key(identity)
        is_meant = self.tenant in (EACH, identity.tenant) and self.user in (None, EACH, identity.user)
        return is_meant and (self.key is None or (bool(key) and self.key in (EACH, key)))

    def list_budgets(self, identity: Identity, agent_keys: Collection[str]) -> Iterator[memory_pb2.SpendBudget]:
        """Yield the rule's budgets for a run of `identity` that may ask these agents; none if the rule does not
        apply."""
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
    """The budgets; all that match a run apply to it."""

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
    """Return a file with the rules for `identity`, under which its runs behave as under the whole file; empty without
    rules.

    Of other rules it reveals only that money is limited, which makes prices matter to every run.
    """
    rules = [rule for rule in budgets.rules if rule.is_for(identity)]
    if budgets.limit_money and not any(rule.usd is not None for rule in rules):
        rules.append(Rule(id="others", period="month", tenant=NOBODY, usd=Decimal(0)))
    if not rules:
        return ""
    return json.dumps({"budgets": [rule.model_dump(mode="json", by_alias=True, exclude_none=True) for rule in rules]})


def parse_budgets(data: bytes) -> Budgets:
    """Parse the file. Raises BudgetsError that lists all problems."""
    try:
        return Budgets(load_yaml_model(data, File).budgets)
    except ValueError as error:
        raise BudgetsError(str(error)) from error


FILE_BYTES_MAX = 256 * 1024


class BudgetsFile:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._budgets: Budgets | None = Budgets()

    @property
    def current(self) -> Budgets:
        """The rules in force.

        Raises:
            Overloaded: The file has never been valid, so its limits are unknown.
        """
        if self._budgets is None:
            raise Overloaded("budgets.yaml has been invalid since the start; the orchestrator's log has the errors")
        return self._budgets

    @property
    def is_good(self) -> bool:
        """Whether rules are in force, even an empty list."""
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


SPARE_CALLS = 3
"""Further calls of the same size requested along with one, so that most runs ask memory only once."""


@dataclass(slots=True)
class Allowance:
    """A run's share of the tenant's budgets; its scopes share it."""

    run_id: str
    identity: Identity
    peers: Peers
    file: BudgetsFile
    list_agents: Callable[[], Collection[str]]
    """Return the keys of all agents that the run may ask."""
    _granted: tuple[int, int] | None = None
    """Billionths of a US dollar and tokens granted over the run's whole life; None before the first grant."""
    _open: tuple[int, int] = (0, 0)
    """The most that calls in progress may need, in the same units."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def hold(self, needs: CallNeeds, usage: common_pb2.Usage) -> tuple[int, int]:
        """Hold a grant for a call until `release`; `usage` is the run's spending before it. Return what is held.

        Raises:
            QuotaExceeded: A budget has no room for the call; the error states when it will.
        """
        if not self.file.current.rules:
            return 0, 0
        need = to_nano_usd(needs.cost_usd_max), needs.input_tokens + needs.output_tokens_max
        async with self._asking:  # one claim at a time: the next one sees what this one was granted
            await self._claim(need, usage)
            self._open = self._open[0] + need[0], self._open[1] + need[1]
        return need

    def release(self, need: tuple[int, int]) -> None:
        self._open = self._open[0] - need[0], self._open[1] - need[1]

    async def _claim(self, need: tuple[int, int], usage: common_pb2.Usage) -> None:
        spent = to_nano_usd(usage.cost_usd), usage.input_tokens + usage.output_tokens
        least = tuple(spent[unit] + self._open[unit] + need[unit] for unit in (0, 1))
        if self._granted is not None and all(granted >= at for granted, at in zip(self._granted, least, strict=True)):
            return
        agent_keys = self.list_agents()
        budgets = self.file.current.select(self.identity, agent_keys)
        if not budgets:
            return
        wanted = tuple(least[unit] + SPARE_CALLS * need[unit] for unit in (0, 1))
        request = memory_pb2.ReserveSpendRequest(
            run_id=self.run_id,
            agent_keys=agent_keys,
            budgets=budgets,
            least=memory_pb2.SpendAmount(nano_usd=least[0], tokens=least[1]),
            wanted=memory_pb2.SpendAmount(nano_usd=wanted[0], tokens=wanted[1]),
        )
        response = await self.peers.memory.ReserveSpend(request)
        self._granted = response.granted.nano_usd, response.granted.tokens


def list_agents_below(roots: Collection[str], find_subagents: Callable[[str], Collection[str]]) -> set[str]:
    """Return `roots` and all agents that they may call, directly or indirectly."""
    found: set[str] = set()
    rest = [*roots]
    while rest:
        if (key := rest.pop()) not in found:
            found.add(key)
            rest += find_subagents(key)
    return found
