"""Four eyes: an agent pays an invoice when two of finance have approved it, and neither is who asked."""

from __future__ import annotations

import asyncio
import sys

from suite import open_suite, tell

from headrace.client import Client
from headrace.errors import HeadraceError

APPROVE = '{"decision": "approve"}'


async def main() -> None:
    async with open_suite("ada", "bob:finance", "cleo:finance", needs="pay") as (ada, bob, cleo):
        tell("ada", "Pay 1200 euros to Miller & Sons")
        was_asked = False
        async with ada.ask("Pay 1200 euros to Miller & Sons", agent_key="cashier") as deltas:
            async for delta in deltas:
                if delta.HasField("gate_open"):
                    was_asked = True
                    await decide(ada, bob, cleo)
                elif delta.HasField("tool_result"):
                    tell("tool", delta.tool_result.result.strip())
                elif delta.HasField("gate_close"):
                    tell("gate", f"{delta.gate_close.state} by {delta.gate_close.answered_by}")
                elif delta.HasField("run_complete"):
                    tell("run", "complete")
        if not was_asked:
            sys.exit("nobody was asked to approve the payment")


async def decide(ada: Client, bob: Client, cleo: Client) -> None:
    """Let each of them answer the gate that waits."""
    [listed] = (await bob.gates()).gates
    gate = await bob.gate(listed.run_id, listed.gate_id)  # which has the arguments too
    tell("gate", f"{gate.tool_name} {gate.arguments} waits for {gate.answerers.count} of {gate.answerers.any_of[0]}")
    try:
        await ada.answer_gate(gate.run_id, gate.gate_id, APPROVE)
    except HeadraceError as error:
        tell("ada", f"approves, and is refused: {error.reason}")
    for name, client in ("bob", bob), ("cleo", cleo):
        answered = await client.answer_gate(gate.run_id, gate.gate_id, APPROVE)
        tell(name, f"approves: {answered.status}, {answered.votes_missing} missing")


asyncio.run(main())
