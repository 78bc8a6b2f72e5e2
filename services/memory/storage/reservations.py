"""Computes a run's share of budgets, in SQL that both engines accept.

A run's grant is the maximum it may spend in its whole life. Charges in its lines count as spent, as in all views of
spending; the rest is reserved for it while it is active and has an owner. So nothing has to be returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.memory.storage.spend import render_sums

if TYPE_CHECKING:
    from collections.abc import Sequence


_TOKENS = "{0}.input_tokens + {0}.output_tokens"


@dataclass(frozen=True, slots=True)
class Amount:
    nano_usd: int = 0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit for a period; empty texts and None limit nothing."""

    budget_id: str
    first_day: int
    last_day: int
    """Days since 1970-01-01, both included."""
    user: str
    agent_key: str
    credential: str
    nano_usd_max: int | None
    tokens_max: int | None


@dataclass(frozen=True, slots=True)
class SpendReservation:
    tenant: str
    run_id: str
    agent_keys: Sequence[str]
    """Agents that the run may ask; budgets of all of them limit its grant."""
    budgets: Sequence[Budget]
    least: Amount
    wanted: Amount
    now: int
    """Unix milliseconds, to decide which leases are valid."""

    @property
    def agents(self) -> str:
        """The keys, each between line breaks."""
        return "".join(f"\n{key}\n" for key in self.agent_keys)


@dataclass(frozen=True, slots=True)
class BudgetUse:
    spent: Amount
    kept: Amount
    """The unspent rest of other runs' grants."""


@dataclass(frozen=True, slots=True)
class SpendDecision:
    granted: Amount | None
    """None: the budgets in `refusing` have no room."""
    refusing: Sequence[Budget]
    nearing: Sequence[tuple[Budget, float]]
    """Each budget with its share that is spent or reserved, including this grant."""


def decide_reservation(reservation: SpendReservation, charged: Amount, uses: Sequence[BudgetUse]) -> SpendDecision:
    """Grant the minimum that is needed, plus at most half of the rest towards the wanted amount, so that others can
    follow.

    `charged` is the sum of the run's own lines, which is part of both the spending and the grant.
    """
    rooms = [_measure_room(budget, use, charged) for budget, use in zip(reservation.budgets, uses, strict=True)]
    granted, refusing = list[int](), list[Budget]()
    for index, (least, wanted) in enumerate(
        zip(_list_units(reservation.least), _list_units(reservation.wanted), strict=True)
    ):
        limits = [room[index] for room in rooms]
        known = [limit for limit in limits if limit is not None]
        refusing += [
            budget
            for budget, limit in zip(reservation.budgets, limits, strict=True)
            if limit is not None and limit < least
        ]
        granted.append(max(least, min(wanted, least + (min(known, default=2 * wanted) - least) // 2)))
    grant = None if refusing else Amount(*granted)
    kept = Amount() if grant is None else Amount(*(max(0, all_ - own) for all_, own in _pair(grant, charged)))
    shares = [_measure_share(budget, use, kept) for budget, use in zip(reservation.budgets, uses, strict=True)]
    return SpendDecision(grant, refusing, list(zip(reservation.budgets, shares, strict=True)))


def _list_units(amount: Amount) -> tuple[int, int]:
    return amount.nano_usd, amount.tokens


def _pair(first: Amount, second: Amount) -> list[tuple[int, int]]:
    return list(zip(_list_units(first), _list_units(second), strict=True))


def _measure_room(budget: Budget, use: BudgetUse, charged: Amount) -> list[int | None]:
    """Return the maximum that the run's grant may be, by unit."""
    limits = (budget.nano_usd_max, budget.tokens_max)
    used = _pair(use.spent + use.kept, charged)
    return [None if limit is None else limit - all_ + own for limit, (all_, own) in zip(limits, used, strict=True)]


def _measure_share(budget: Budget, use: BudgetUse, kept: Amount) -> float:
    limits = (budget.nano_usd_max, budget.tokens_max)
    used = _list_units(use.spent + use.kept + kept)
    return max((amount / limit for limit, amount in zip(limits, used, strict=True) if limit), default=0.0)


def render_use(reservation: SpendReservation, budget: Budget, source: str) -> tuple[str, list[Any]]:
    """Return the statement for a budget's usage, with numbered marks ($1), and its values.

    `source` joins grants, their runs and these runs' leases. A single statement ensures that a charge is not counted
    both as spent and as reserved.
    """
    values: list[Any] = [reservation.tenant, budget.first_day, budget.last_day, reservation.run_id, reservation.now]
    wanted = {"user_name": budget.user, "credential": budget.credential, "agent_key": budget.agent_key}
    wanted = {column: value for column, value in wanted.items() if value}
    spent = [render_sums((), wanted), "tenant = $1", "day BETWEEN $2 AND $3"]
    kept = ["runs.of_tenant = $1", "grants.run_id <> $4", "NOT runs.is_ended", "coalesce(expires_at, 0) > $5"]
    for column, value in wanted.items():
        values.append(value)
        spent.append(f"{column} = ${len(values)}")
        if column == "agent_key":
            values.append(f"\n{value}\n")
            kept.append(f"replace(grants.agents, ${len(values)}, '') <> grants.agents")
        else:
            kept.append(f"runs.{'of_user' if column == 'user_name' else column} = ${len(values)}")
    left = (
        _render_left("grants.nano_usd", "runs.cost_nano_usd"),
        _render_left("grants.tokens", _TOKENS.format("runs")),
    )
    return (
        f"SELECT * FROM (SELECT {_render_sum('cost_nano_usd')}, {_render_sum(_TOKENS.format('spend_sums'))}"
        f" FROM {' AND '.join(spent)}) AS spent,"
        f" (SELECT {', '.join(map(_render_sum, left))} FROM {source} WHERE {' AND '.join(kept)}) AS kept",
        values,
    )


RUN = f"""
SELECT cost_nano_usd, {_TOKENS.format("runs")} FROM runs WHERE run_id = $1 AND of_tenant = $2 AND NOT is_ended
"""


def _render_left(granted: str, charged: str) -> str:
    return f"CASE WHEN {granted} > {charged} THEN {granted} - ({charged}) ELSE 0 END"


def _render_sum(value: str) -> str:
    return f"CAST(coalesce(sum({value}), 0) AS bigint)"
