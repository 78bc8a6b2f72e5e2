"""Shares of budgets that runs claim."""

from typing import Any

from headrace.v1 import memory_pb2
from services.runtime.auth.identity import Identity
from tests.support.memory.writing import Memory, new_id, query_line

ADA, BOB = Identity("acme", "ada", "api_key:ada"), Identity("acme", "bob")


LIMIT = 10_000


def budget(**fields: Any) -> memory_pb2.SpendBudget:
    given: dict[str, Any] = {"budget_id": "all", "period": "month", "nano_usd_max": LIMIT} | fields
    return memory_pb2.SpendBudget(**given)


def amount(given: int | tuple[int, int]) -> memory_pb2.SpendAmount:
    nano_usd, tokens = given if isinstance(given, tuple) else (given, 0)
    return memory_pb2.SpendAmount(nano_usd=nano_usd, tokens=tokens)


async def claim(
    memory: Memory,
    run_id: str,
    least: int | tuple[int, int],
    wanted: int | tuple[int, int] | None = None,
    *budgets: memory_pb2.SpendBudget,
    agents: tuple[str, ...] = ("writer",),
) -> int | tuple[int, int]:
    granted = (
        await memory.call(
            "ReserveSpend",
            run_id=run_id,
            agent_keys=agents,
            budgets=budgets or [budget()],
            least=amount(least),
            wanted=amount(least if wanted is None else wanted),
        )
    ).granted
    return (granted.nano_usd, granted.tokens) if isinstance(least, tuple) else granted.nano_usd


async def begin(memory: Memory, owner: Identity = ADA, ttl_ms: int = 60_000) -> tuple[str, str]:
    """Begin a run that has an owner."""
    chat_id, run_id = new_id(), new_id()
    await memory.call_as(
        owner,
        "Append",
        chat_id=chat_id,
        run_id=run_id,
        request_id=new_id(),
        lines=[query_line()],
        owner="a",
        ttl_ms=ttl_ms,
    )
    return chat_id, run_id
