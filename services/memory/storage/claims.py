"""What budgets have left for a run, in SQL that both engines take.

A run's grant is what it may spend in all its life. What its lines have charged of it is spent, as all views of what was
spent have it; the rest is kept for it as long as it goes on and somebody owns it. So nothing has to be given back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
class SpendClaim:
    tenant: str
    run_id: str
    agent_keys: Sequence[str]
    """Agents that the run may ask: all their budgets are held against its grant."""
    budgets: Sequence[Budget]
    least: Amount
    wanted: Amount
    now: int
    """Unix milliseconds, by which leases hold."""

    @property
    def agents(self) -> str:
        """The keys, each with a line break before and behind it."""
        return "".join(f"\n{key}\n" for key in self.agent_keys)


@dataclass(frozen=True, slots=True)
class BudgetUse:
    spent: Amount
    kept: Amount
    """What the grants of other runs have left."""


@dataclass(frozen=True, slots=True)
class SpendDecision:
    granted: Amount | None
    """None: the budgets of `refusing` have no room."""
    refusing: Sequence[Budget]
    nearing: Sequence[tuple[Budget, float]]
    """Each budget with the share of it that is spent or kept now, this grant included."""


def decide_claim(claim: SpendClaim, charged: Amount, uses: Sequence[BudgetUse]) -> SpendDecision:
    """Grant what is needed at least, and of what is wanted beside it at most half of the rest: others may come.

    `charged` is what the run's own lines have, which is in what was spent and in the grant.
    """
    rooms = [_measure_room(budget, use, charged) for budget, use in zip(claim.budgets, uses, strict=True)]
    granted, refusing = list[int](), list[Budget]()
    for index, (least, wanted) in enumerate(zip(_list_units(claim.least), _list_units(claim.wanted), strict=True)):
        limits = [room[index] for room in rooms]
        known = [limit for limit in limits if limit is not None]
        refusing += [
            budget for budget, limit in zip(claim.budgets, limits, strict=True) if limit is not None and limit < least
        ]
        granted.append(max(least, min(wanted, least + (min(known, default=2 * wanted) - least) // 2)))
    grant = None if refusing else Amount(*granted)
    kept = Amount() if grant is None else Amount(*(max(0, all_ - own) for all_, own in _pair(grant, charged)))
    shares = [_measure_share(budget, use, kept) for budget, use in zip(claim.budgets, uses, strict=True)]
    return SpendDecision(grant, refusing, list(zip(claim.budgets, shares, strict=True)))


def _list_units(amount: Amount) -> tuple[int, int]:
    return amount.nano_usd, amount.tokens


def _pair(first: Amount, second: Amount) -> list[tuple[int, int]]:
    return list(zip(_list_units(first), _list_units(second), strict=True))


def _measure_room(budget: Budget, use: BudgetUse, charged: Amount) -> list[int | None]:
    """Return what the run's grant may be at most, by unit."""
    limits = (budget.nano_usd_max, budget.tokens_max)
    used = _pair(use.spent + use.kept, charged)
    return [None if limit is None else limit - all_ + own for limit, (all_, own) in zip(limits, used, strict=True)]


def _measure_share(budget: Budget, use: BudgetUse, kept: Amount) -> float:
    limits = (budget.nano_usd_max, budget.tokens_max)
    used = _list_units(use.spent + use.kept + kept)
    return max((amount / limit for limit, amount in zip(limits, used, strict=True) if limit), default=0.0)


def render_use(claim: SpendClaim, budget: Budget, source: str) -> tuple[str, list[Any]]:
    """Return the statement of a budget's use, with numbered marks ($1), and its values. `source` joins grants, their
    runs and these runs' leases. It is one statement, so that a charge is not seen as spent and as kept."""
    values: list[Any] = [claim.tenant, budget.first_day, budget.last_day, claim.run_id, claim.now]
    spent, kept = ["tenant = $1", "day BETWEEN $2 AND $3"], ["runs.of_tenant = $1", "grants.run_id <> $4"]
    kept += ["NOT runs.is_ended", "coalesce(expires_at, 0) > $5"]
    for value, of_spend, of_run in (
        (budget.user, "user_name", "runs.of_user"),
        (budget.credential, "credential", "runs.credential"),
    ):
        if value:
            values.append(value)
            spent.append(f"{of_spend} = ${len(values)}")
            kept.append(f"{of_run} = ${len(values)}")
    if budget.agent_key:
        values += [budget.agent_key, f"\n{budget.agent_key}\n"]
        spent.append(f"agent_key = ${len(values) - 1}")
        kept.append(f"replace(grants.agents, ${len(values)}, '') <> grants.agents")
    left = (
        _render_left("grants.nano_usd", "runs.cost_nano_usd"),
        _render_left("grants.tokens", _TOKENS.format("runs")),
    )
    return (
        f"SELECT * FROM (SELECT {_render_sum('cost_nano_usd')}, {_render_sum(_TOKENS.format('spend'))} FROM spend"
        f" WHERE {' AND '.join(spent)}) AS spent,"
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
