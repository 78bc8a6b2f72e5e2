"""Map and reduce: each document of the message is read by itself, several at a time, and one answer is made of all."""

from __future__ import annotations

from services.orchestrator.mode_api.mode import Mode, Task


async def run(mode: Mode) -> None:
    documents = [part.strip() for part in mode.message.split("\n---\n") if part.strip()]
    tasks = await mode.plan([f"Read document {number}" for number, _ in enumerate(documents, 1)])

    async def read(task: Task, document: str) -> str:
        async with mode.task(task, stage="reader") as reader:
            return await reader.ask(f"Say in one sentence what this says:\n\n{document}")

    works = [read(task, document) for task, document in zip(tasks, documents, strict=True)]
    found = await mode.run_together(works, at_once=mode.params.get("atOnce", 4))
    notes = "\n".join(f"{number}. {text}" for number, text in enumerate(found, 1))
    await mode.answer(f"Make one answer of these notes:\n{notes}")
