"""Spending, in rows by chat and day: sums of the charges in the chat's lines.

A row stays when its chat is deleted; those of all deleted chats are summed up. Triggers keep the sums of all chats by
scope (SCOPES), from which budgets and usage are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any

from headrace.v1 import common_pb2
from services.memory.log.lines import Charge, Line, Run, Unknown
from services.memory.log.raw_json import load_proto
from services.memory.storage.where import Where
from services.runtime.usage import to_nano_usd

if TYPE_CHECKING:
    from services.memory.log.chat_info import ChatInfo, RunInfo


_API_KEY = "api_key:"

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class SpendKey:
    """Key by which charges are summed up, within their chat."""

    day: int
    """Days since 1970-01-01, UTC."""
    tenant: str
    user: str
    agent_key: str
    model: str
    credential: str
    """Only for API keys, because each of a user's tokens has another name."""


@dataclass(frozen=True, slots=True)
class SpendSum:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_nano_usd: int = 0

    def __add__(self, other: SpendSum) -> SpendSum:
        return SpendSum(*map(add, _get_sums(self), _get_sums(other)))

    def __bool__(self) -> bool:
        return any(_get_sums(self))


SpendRow = tuple[SpendKey, SpendSum]

KEY_NAMES = tuple(field.name for field in fields(SpendKey))
SUM_NAMES = tuple(field.name for field in fields(SpendSum))

_get_sums = attrgetter(*SUM_NAMES)


def fold_spend(info: ChatInfo, lines: Iterable[Line]) -> tuple[SpendRow, ...]:
    """Return the sums of the charges in `lines`, by user and day; `info` knows their runs."""
    sums: dict[SpendKey, SpendSum] = {}
    for line in lines:
        run = info.runs.get(line.run_id)
        credential = run.credential if run is not None and run.credential.startswith(_API_KEY) else ""
        for charge in _list_charges(line, run):
            day, tenant, user = line.updated_at // DAY_MS, info.owner.tenant, info.find_requester(line.run_id)
            key = SpendKey(day, tenant, user, charge.agent_key, charge.model, credential)
            sums[key] = sums.get(key, SpendSum()) + SpendSum(*_get_sums(charge))
    return tuple((key, total) for key, total in sums.items() if total)


def _list_charges(line: Line, run: RunInfo | None) -> Iterator[Charge]:
    if isinstance(line, Unknown):
        return
    yield from line.charges or ()
    # The end of a run in a log of earlier versions, which has nothing else.
    if isinstance(line, Run) and line.usage and run is not None and not run.has_charges:
        usage = common_pb2.Usage()
        load_proto(line.usage, usage)
        if not (usage.input_tokens or usage.output_tokens or usage.cost_usd):
            return  # its calls were refused
        yield Charge(
            agent_key=run.agent_key,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            model_calls=usage.model_calls,
            cost_nano_usd=to_nano_usd(usage.cost_usd),
        )


GROUPS = ("day", "user_name", "agent_key", "model", "credential")
"""Columns that rows can be grouped by."""

ROWS_MAX = 5000
"""Maximum rows; more than a page or a spreadsheet shows well."""

SCOPES = {
    "tenant": frozenset[str](),
    "agent": frozenset({"agent_key", "model"}),
    "user": frozenset({"user_name", "agent_key", "model", "credential"}),
}
"""Columns of the kept sums by scope, narrowest first; all are by tenant and day."""

_SUMS = ", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint)" for name in SUM_NAMES)

IS_ZERO = " AND ".join(f"{name} = 0" for name in SUM_NAMES)
"""Whether a sum's charges have been removed again."""


def render_sums(groups: Collection[str], wanted: Collection[str]) -> str:
    """Return the source and first conditions of the kept sums that have the columns `groups` and `wanted`."""
    scope = next(scope for scope, known in SCOPES.items() if known.issuperset({*groups, *wanted}))
    # The index of the keys' rows serves only queries that state its condition.
    return f"spend_sums WHERE scope = '{scope}'" + (" AND credential <> ''" if "credential" in wanted else "")


@dataclass(frozen=True, slots=True)
class SpendQuery:
    tenant: str
    first_day: int
    last_day: int
    """Days since 1970-01-01, both included."""
    groups: Collection[str] = ()
    """Some of GROUPS."""
    wanted: dict[str, str] = field(default_factory=dict[str, str])
    """Values that columns must have."""

    @property
    def columns(self) -> list[str]:
        return [name for name in GROUPS if name in self.groups]

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement for the rows, one more than allowed, with numbered marks ($1), and its values."""
        columns = ", ".join(self.columns)
        order = ", ".join([*(["day"] if "day" in self.groups else []), f"sum(cost_nano_usd) DESC, {columns}"])
        spent = " OR ".join(f"sum({name}) <> 0" for name in SUM_NAMES)
        rest = f" GROUP BY {columns} HAVING {spent} ORDER BY {order} LIMIT {ROWS_MAX + 1}"
        return self._select(f"{columns}, {_SUMS}", rest)

    def render_total(self) -> tuple[str, list[Any]]:
        return self._select(_SUMS)

    def _select(self, columns: str, rest: str = "") -> tuple[str, list[Any]]:
        where = Where()
        where.add("tenant = {} AND day BETWEEN {} AND {}", self.tenant, self.first_day, self.last_day)
        where.add_given({f"{column} = {{}}": value for column, value in self.wanted.items()})
        source = render_sums({*self.groups} - {"day"}, self.wanted)
        return f"SELECT {columns} FROM {source} AND {where}{rest}", where.values


@dataclass(frozen=True, slots=True)
class SpendGroup:
    """A row of a result: values of the requested columns."""

    columns: dict[str, Any]
    total: SpendSum


@dataclass(frozen=True, slots=True)
class SpendAnswer:
    groups: list[SpendGroup]
    total: SpendSum

    @classmethod
    def from_rows(cls, query: SpendQuery, rows: Collection[Collection[Any]], total: Collection[int]) -> SpendAnswer:
        names = query.columns
        groups = [
            SpendGroup(dict(zip(names, row, strict=False)), SpendSum(*[*row][len(names) :])) for row in map(tuple, rows)
        ]
        whole = SpendSum(*total)
        return cls(groups if names else [SpendGroup({}, whole)], whole)
