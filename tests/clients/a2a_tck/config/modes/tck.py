"""What the compatibility kit asks an agent to do, by the beginning of a message's id (scenarios/*.feature there)."""

from services.orchestrator.mode_api.mode import Mode


async def run(mode: Mode) -> None:
    wish = mode.conversation.run.query.request_id
    if wish.startswith("tck-input-required"):
        await mode.ask_person("What else?")
    await mode.finish("Generated text content" if wish.startswith("tck-artifact-text") else "Hello from TCK")
