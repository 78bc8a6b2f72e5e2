"""Two tabs: both want to fill in the same form; one claims it, goes away, and the other takes it over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from suite import EXAMPLES, open_suite, tell

from headrace.client import Client
from headrace.errors import HeadraceError

LEASE_MS = 2000
"""How long a tab holds the form without a sign of life; left out, a minute."""


async def main() -> None:
    async with (
        open_suite("ada", config_dir=EXAMPLES) as (ada,),
        ada.ask("Book a table for two", agent_key="booker") as deltas,
    ):
        async for delta in deltas:
            if delta.HasField("gate_open"):
                [gate] = (await ada.gates()).gates
                await fight(ada, gate.run_id, gate.gate_id)
            elif delta.HasField("gate_close"):
                tell("form", delta.gate_close.state)
            elif delta.HasField("tool_result"):
                tell("tool", delta.tool_result.result.strip())
            elif delta.HasField("run_complete"):
                tell("run", "complete")


async def fight(ada: Client, run_id: str, gate_id: str) -> None:
    """Let two tabs of the same user claim and answer the gate."""
    tell("form", (await ada.gate(run_id, gate_id)).arguments)
    await ada.claim_gate(run_id, gate_id, "tab 1", lease_ms=LEASE_MS)
    tell("tab 1", "claims the form, and is closed")
    await show_refusal("tab 2", "claims it too", ada.claim_gate(run_id, gate_id, "tab 2"))
    while not await claims(ada, run_id, gate_id):
        await asyncio.sleep(0.1)
    tell("tab 2", "takes it over when the lease has ended")
    yes, maybe = '{"choice": "yes"}', '{"choice": 7}'
    await show_refusal("tab 1", "is opened again, and answers", ada.answer_gate(run_id, gate_id, yes, holder="tab 1"))
    await show_refusal(
        "tab 2", "answers what the form does not take", ada.answer_gate(run_id, gate_id, maybe, holder="tab 2")
    )
    answered = await ada.answer_gate(run_id, gate_id, yes, holder="tab 2")
    tell("tab 2", f"answers: {answered.status}")


async def claims(ada: Client, run_id: str, gate_id: str) -> bool:
    """Return whether tab 2 could claim the form."""
    try:
        await ada.claim_gate(run_id, gate_id, "tab 2")
    except HeadraceError:
        return False
    return True


async def show_refusal(who: str, what: str, call: Awaitable[object]) -> None:
    try:
        await call
    except HeadraceError as error:
        tell(who, f"{what}, and is refused: {error.reason}")
        return
    raise RuntimeError(f"{who} {what}, and is not refused")


asyncio.run(main())
