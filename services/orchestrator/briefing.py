"""What a run is given at its start, and keeps to its end: its tools and its system message."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator import prompts
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers, peer_errors
from services.orchestrator.run import Run
from services.runtime.ids import forwarded


async def tools(run: Run, peers: Peers) -> list[tools_pb2.Tool]:
    """The definitions of the agent's tools; those that are missing are reported, and the run goes on without."""
    names = run.agent.tools
    if not names:
        return []
    with peer_errors():
        reply = await peers.tools.ListTools(
            tools_pb2.ListToolsRequest(names=names), timeout=UNARY_TIMEOUT_S, metadata=forwarded()
        )
    found = {tool.name.lower(): tool for tool in reply.tools}
    usable: list[tools_pb2.Tool] = []
    for name in names:
        tool = found.get(name.lower())
        if tool is None:
            await run.main.notice("TOOL_UNAVAILABLE", f"there is no tool {name!r}; the agent goes on without it")
        elif tool.HasField("unavailable"):
            await run.main.notice("TOOL_UNAVAILABLE", f"tool {name!r} cannot be used: {tool.unavailable}")
        else:
            usable.append(tool)
    return usable


async def system(run: Run, peers: Peers, tools: list[tools_pb2.Tool]) -> str:
    """The system message, fixed for the run."""
    prompt = run.agent.stage.system_prompt
    now = datetime.now(UTC)
    names = "\n".join(reference.name for reference in run.query.references)
    values = {
        "date": f"{now:%Y-%m-%d}",
        "query": run.query.message,
        "tools": "\n".join(f"- {tool.name}: {tool.description}" for tool in tools),
        "files": names,
        "file_names": names,
    }
    if prompts.uses(prompt, "history_dialogue"):
        values["history_dialogue"] = await _dialogue(run, peers)
    parts = [prompts.fill(prompt, values)]
    hints = [f"- {tool.name}: {tool.after_call_hint}" for tool in tools if tool.after_call_hint]
    if hints:
        parts.append("After calling a tool:\n" + "\n".join(hints))
    return prompts.with_time("\n\n".join(parts), now)


async def _dialogue(run: Run, peers: Peers) -> str:
    """What was said before this run, as text."""
    with peer_errors():
        context = await peers.memory.LoadContext(
            memory_pb2.LoadContextRequest(chat_id=run.chat_id, run_id=run.id),
            timeout=UNARY_TIMEOUT_S,
            metadata=forwarded(),
        )
    spoken = [message for message in context.messages[:-1] if message.role in ("user", "assistant")]
    texts = [(message.role, "".join(part.text for part in message.content)) for message in spoken]
    return "\n".join(f"{role}: {text}" for role, text in texts if text)
