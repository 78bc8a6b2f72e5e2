"""A debate: two models argue, each with a prompt and a conversation of its own, and a third one judges."""

from __future__ import annotations

from services.orchestrator.mode_api.mode import Mode


async def run(mode: Mode) -> None:
    sides = await mode.plan(["Argue for it", "Argue against it"])
    async with mode.task(sides[0], stage="pro") as pro, mode.task(sides[1], stage="contra") as contra:
        said = await pro.ask("Open the debate.")
        record = [f"For: {said}"]
        for _ in range(mode.params.get("rounds", 2)):
            against = await contra.ask(f"The other side says: {said}\nAnswer it.")
            said = await pro.ask(f"The other side says: {against}\nAnswer it.")
            record += [f"Against: {against}", f"For: {said}"]
    await mode.answer("Judge this debate, and say who has won:\n" + "\n".join(record))
