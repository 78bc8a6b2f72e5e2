"""On call: a schedule has an agent look at a pump; nobody answers what it asks, so it reminds, then asks the chief."""

from __future__ import annotations

import asyncio
import time

from suite import open_suite, tell

from headrace.client import Client

AT_ONCE_MS = 1000


async def main() -> None:
    async with open_suite("pete", "nina:on_call", "carla:chief", needs="restart_pump") as (pete, nina, carla):
        once_at = round(time.time() * 1000) + AT_ONCE_MS
        made = await pete.create_schedule("pump_warden", "Check the pump", once_at=once_at, name="Pump")
        tell("schedule", f"{made.name}: {made.message!r}, once; --cron '*/10 * * * *' would be every ten minutes")
        async with pete.attach(await find_waiting_run(nina)) as deltas:
            async for delta in deltas:
                if delta.HasField("gate_open"):
                    tell("gate", f"{delta.gate_open.tool_name} waits for {delta.gate_open.answerers.any_of[0]}")
                elif delta.HasField("gate_step"):
                    tell("gate", delta.gate_step.step)
                    if delta.gate_step.step == "escalated":
                        await approve(carla)
                elif delta.HasField("gate_close"):
                    tell("gate", f"{delta.gate_close.state} by {delta.gate_close.answered_by}")
                elif delta.HasField("tool_result"):
                    tell("tool", delta.tool_result.result.strip())
                elif delta.HasField("run_complete"):
                    tell("run", "complete")
        while not (firings := (await pete.schedule(made.schedule_id)).firings):
            await asyncio.sleep(0.2)
        tell("schedule", f"its last time is {firings[0].outcome}, in chat {firings[0].chat_id}")


async def find_waiting_run(nina: Client) -> str:
    """Return the run of the first gate that whoever is on call is shown."""
    async with nina.watch_gates() as news:
        async for one in news:
            if one.HasField("gate"):
                gate = await nina.gate(one.gate.run_id, one.gate.gate_id)  # which has the arguments too
                tell("nina", f"is shown {gate.tool_name} {gate.arguments}, and is asleep")
                return gate.run_id
    raise RuntimeError("the server has stopped")


async def approve(carla: Client) -> None:
    [gate] = (await carla.gates()).gates
    answered = await carla.answer_gate(gate.run_id, gate.gate_id, '{"decision": "approve"}')
    tell("carla", f"approves: {answered.status}")


asyncio.run(main())
