"""Support triage: the model sorts a message, and code decides what is done: a ticket, a person, or an answer."""

from __future__ import annotations

from services.orchestrator.mode_api.mode import Mode

QUEUES = ("billing", "fault")


async def run(mode: Mode) -> None:
    said = await mode.ask(f"Is this about billing, a fault or anything else? Say one word.\n\n{mode.message}")
    queue = next((queue for queue in QUEUES if queue in said.lower()), "else")
    counts = await mode.load_state("counts", {})
    await mode.save_state("counts", counts | {queue: counts.get(queue, 0) + 1})
    if queue == "fault":
        ticket = await mode.call_tool("open_ticket", id=mode.new_id(), summary=mode.message)
        await mode.answer(f"Tell the user kindly what was done: {ticket.text}")
    elif queue == "billing":
        decided = await mode.ask_person("May the amount be refunded?", choices=["yes", "no"])
        await mode.answer(f"Tell the user kindly what was decided: {decided.text}")
    else:
        await mode.answer("Answer the user.")
