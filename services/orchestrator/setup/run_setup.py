"""Chooses among an agent's models, the preferred one or one that sees images, and selects their files and facts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import structlog

from headrace.errors import HeadraceError, InvalidRequest
from headrace.v1 import memory_pb2, tools_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.version import is_named
from services.orchestrator.peers.models import estimate_tokens, list_capabilities
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import list_workspace
from services.orchestrator.run import session_state
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import list_callable_agents
from services.orchestrator.run.scope_parts import Todo, Upload
from services.orchestrator.setup import query_options, skills, uploads
from services.orchestrator.setup.tool_selection import (
    ToolCatalogue,
    describe_unnameable,
    find_nameable,
    load_catalogue,
    select_tools,
)
from services.orchestrator.setup.uploads import IMAGES
from services.orchestrator.turn import model_stream
from services.orchestrator.turn.context import is_compact_command
from services.runtime.clock import format_day

log = structlog.get_logger()


CAPABILITIES = {"audio": "audio", "pdf": "files"}
"""Ability that a model needs, by kind of upload."""


async def choose_model(run: Run, peers: Peers, state: session_state.State, given: Iterable[Upload]) -> None:
    """Set the model of all stages.

    Raises:
        InvalidRequest: The query has images, and no model of the agent can see them.
    """
    agent = run.agent.with_model(state.read("model_pref", str, "")) or run.agent
    if any(upload.mime_type in IMAGES for upload in given) and not await _sees_images(agent, peers):
        seeing = run.agent.with_model("vision")
        if seeing is None:
            model = agent.primary.model.model
            raise InvalidRequest.of("references", f"model {model!r} sees no images, and the agent has no models.vision")
        agent = seeing
    run.main.agent = agent


async def find_shown_kinds(run: Run, peers: Peers, given: Iterable[Upload]) -> frozenset[str]:
    """Return the kinds of `given`, audio and pdf, to show to the chosen models.

    These are the kinds that the models are known to accept; without tools, which could read the files, also kinds for
    models with unknown abilities.

    Raises:
        InvalidRequest: Neither the models nor tools can read a file.
    """
    agent = run.main.agent
    kinds = sorted({upload.kind for upload in given if uploads.is_shown_kind(upload)})
    if not kinds:
        return frozenset()
    known, has_tools = await list_capabilities(peers, agent), bool(agent.tools or agent.skills)
    shown = set[str]()
    for kind in kinds:
        needed = CAPABILITIES[kind]
        if all(needed in abilities or not (abilities or has_tools) for abilities in known):
            shown.add(kind)
        elif not has_tools:
            model = agent.primary.model.model
            rule = (
                f"model {model!r} takes no {kind} files: its capabilities lack {needed!r}, and the agent has no tools"
            )
            raise InvalidRequest.of("references", rule)
    if not has_tools and sum(upload.size_bytes for upload in given) > uploads.SHOWN_BYTES_MAX:
        rule = f"a model is shown at most {uploads.SHOWN_BYTES_MAX >> 20} MiB, and the agent has no tools"
        raise InvalidRequest.of("references", rule)
    return frozenset(shown)


async def _sees_images(agent: Definition, peers: Peers) -> bool:
    """Return whether all models see images; a model with unknown capabilities is assumed to."""
    return all(not abilities or "vision" in abilities for abilities in await list_capabilities(peers, agent))


HITS_MAX = 100

QUERY_CHARS_MAX = 2000
"""Characters of a message used as the search query; its beginning states the subject, a paste at its end does not."""


async def recall_for_query(run: Run, peers: Peers) -> list[str]:
    """Return the best facts within the agent's token limit; none if memory does not answer."""
    memory, message = run.agent.memory, run.query.message[:QUERY_CHARS_MAX]
    if memory.facts != "recall" or not message.strip():
        return []
    request = memory_pb2.RecallFactsRequest(query=message, agent_key=run.agent.key, limit=HITS_MAX)
    try:
        reply = await peers.memory.RecallFacts(request)
    except HeadraceError as error:
        log.warning("facts not recalled", run_id=run.id, reason=error.reason)
        return []
    recalled: list[str] = []
    left = memory.facts_tokens
    for hit in reply.hits:
        text = f"{' '.join(hit.fact.text.split())} (since {format_day(hit.fact.updated_at)})"
        left -= estimate_tokens(len(text.encode()) + 3)  # with its dash and line break
        if left < 0:
            break
        recalled.append(text)
    return recalled


GOAL_CHARS_MAX = 200

MESSAGES_TOLD_MAX = 10
MESSAGE_CHARS_MAX = 500

GOAL_STAGE = "goal"

SYSTEM = """\
These are the messages of a user to an assistant, the last one just now. Answer with one word: NEW when the last one \
states a goal of its own, SAME when it continues the previous goal."""


async def record_goal(run: Run, peers: Peers) -> None:
    """Log the goal, if new; a model decides that for agents with LLM insights."""
    recap = run.agent.memory.recap
    if not recap.enabled or is_compact_command(run.query.message) or run.restored.has_goal:
        return
    await run.state.wait_for_start()
    if run.chat.is_first or recap.insights != "llm" or await _states_new_goal(run, peers):
        goal = run.query.message[:GOAL_CHARS_MAX]
        await run.log.append([memory_pb2.LogLine(intent=memory_pb2.NoteLine(text=goal))])


async def _states_new_goal(run: Run, peers: Peers) -> bool:
    request = memory_pb2.LoadContextRequest(chat_id=run.chat_id, run_id=run.id, unfitted=True)
    context = await peers.memory.LoadContext(request)
    texts = ["".join(part.text for part in message.content) for message in context.messages if message.role == "user"]
    text = "\n\n".join(message[:MESSAGE_CHARS_MAX] for message in texts[-MESSAGES_TOLD_MAX:])
    return (
        (await model_stream.ask_model(run, peers, GOAL_STAGE, SYSTEM, text)).strip(" \n*`\"'").upper().startswith("NEW")
    )


@dataclass(slots=True)
class RunSetup:
    tools: list[tools_pb2.Tool] = field(default_factory=list[tools_pb2.Tool])
    skills: str = ""


async def set_up_run(run: Run, peers: Peers) -> RunSetup:
    state, existing, offered, run.main.attention.facts = await _load_all(run, peers)
    given = await _take_uploads(run, peers, state)
    if not run.agent.working.may_use_tools:
        return RunSetup()
    attention = run.main.attention
    attention.todos = state.read("todos", list[Todo], [])
    await _report_missing(run, offered)
    named = await _resolve_mentions(run, existing, offered)
    persistent = state.read("persistent_tools", list[str], [])
    tools = await select_tools(run.main, existing, [*attention.tools, *persistent])
    tools += query_options.make_client_tools(run.query, tools)
    return RunSetup(tools, await _link_skills(run, peers, offered, named, given) if tools else "")


async def _load_all(
    run: Run, peers: Peers
) -> tuple[session_state.State, ToolCatalogue, list[tools_pb2.Skill], list[str]]:
    """Load everything concurrently, because the first turn waits."""
    if not run.agent.working.may_use_tools:
        return await _load_state(run, peers), ToolCatalogue(), [], await recall_for_query(run, peers)
    if peers.tool_list.is_known(None) and peers.skill_list.is_known(None) and run.agent.memory.facts != "recall":
        # At most one of them has to wait, so they need no tasks.
        existing = await load_catalogue(run.main, peers)
        offered = await skills.list_skills(run, peers) if existing.has_any else []
        return await _load_state(run, peers), existing, offered, []
    try:
        async with asyncio.TaskGroup() as group:
            facts = group.create_task(recall_for_query(run, peers))
            state = group.create_task(_load_state(run, peers))
            existing = group.create_task(load_catalogue(run.main, peers))
            offered = group.create_task(skills.list_skills(run, peers))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    skills_there = offered.result() if existing.result().has_any else []
    return state.result(), existing.result(), skills_there, facts.result()


async def _load_state(run: Run, peers: Peers) -> session_state.State:
    is_first = run.chat.is_first and not run.past.reason
    response = run.first_turn.state if run.first_turn is not None else None
    if response is not None and response.state:
        state = session_state.State.from_response(response)
    elif is_first or (run.first_turn is not None and response is None):
        state = session_state.State(0, {})
    else:
        state = await session_state.load(run.main, peers)
    is_owner = run.chat.owner in ("", run.identity.user)
    state, changed = query_options.apply_preferences(state, run.query, run.identity.user, is_owner)
    if changed:
        await session_state.change(run.main, peers, **{query_options.FIELD: changed})
    return state


async def _report_missing(run: Run, offered: list[tools_pb2.Skill]) -> None:
    agent = run.agent
    for name in agent.skills:
        if not any(is_named(skill, [name.casefold()]) for skill in offered):
            await run.main.notice("SKILL_UNAVAILABLE", f"there is no skill {name!r}; the agent continues without it")
    existing = {key.casefold() for key in run.services.agents} if agent.subagents else ()
    for key in agent.subagents:
        if key.casefold() not in existing:
            await run.main.notice("AGENT_UNAVAILABLE", f"there is no agent {key!r}; it cannot be called")


async def _take_uploads(run: Run, peers: Peers, state: session_state.State) -> list[Upload]:
    """Store the query's files for the chat, and show them to the model.

    Raises:
        InvalidRequest: No model of the agent accepts these files.
    """
    attention = run.main.attention
    earlier = state.read("uploaded_files", list[Upload], [])
    given, kept, missing = await uploads.find_uploads(
        run, peers, uploads.read_references(run.query.references), earlier
    )
    attention.links = uploads.read_links(run.query.references)
    await choose_model(run, peers, state, given)
    shown = await find_shown_kinds(run, peers, given)
    attention.uploads = uploads.merge_uploads(kept, given)
    await _find_mentioned_files(run, peers, missing)
    if given:
        await uploads.announce_uploads(run.main, earlier, given)  # before the state knows them: a takeover repeats both
        await session_state.change(run.main, peers, uploaded_files=msgspec.json.encode(attention.uploads))
        await uploads.show_uploads(run.main, peers, given, shown)
    return given


async def _find_mentioned_files(run: Run, peers: Peers, missing: list[str]) -> None:
    """Find the files named in the message, including those that tools created; report missing ones."""
    attention, message = run.main.attention, run.query.message
    paths = [upload.path for upload in attention.uploads]
    if (
        query_options.find_missing_files(message, paths)
        and (listed := await list_workspace(peers, run.chat_id)) is not None
    ):
        paths = [*(file.path for file in listed.files), *paths]
        if not listed.has_more:
            missing += query_options.find_missing_files(message, paths)
    attention.files = query_options.find_files(message, paths)
    attention.missing = missing
    if missing:
        names = ", ".join(repr(name) for name in missing)
        await run.main.notice(
            "FILE_MISSING", f"this chat has no file {names}; an upload is in the chat whose chatId came with it"
        )


async def _resolve_mentions(run: Run, existing: ToolCatalogue, offered: list[tools_pb2.Skill]) -> list[tools_pb2.Skill]:
    """Resolve the tools, skills and agents that the user mentions, as far as the agent allows.

    Mentions in text from a program are ignored.
    """
    attention, found = run.main.attention, list[tools_pb2.Skill]()
    if run.query.from_program:
        return found
    if not (names := query_options.find_names(run.query.message)):
        return found
    unknown: list[str] = []
    tools = find_nameable(run.agent, existing)
    agents = {key.casefold() for key in (*run.agent.subagents, *run.agent.mentionable)}
    callable_keys = {agent.key.casefold(): agent.key for agent in list_callable_agents(run.main)}
    for name in names:
        tool = existing.find_mentioned(name)
        skill = next((skill for skill in offered if is_named(skill, [name.casefold()])), None)
        agent = callable_keys.get(name.casefold())
        if tool is not None and name.casefold() in tools:
            attention.tools.append(tool.name)
        elif skill is not None:
            found.append(skill)
        elif agent is not None and agent.casefold() in agents:
            attention.agents.append(agent)
        elif tool is not None:
            await run.main.notice("TOOL_UNAVAILABLE", describe_unnameable(tool.name))
        elif agent is not None:
            problem = f"agent {agent!r} cannot be called: neither subagents nor mentionable of this agent names it"
            await run.main.notice("AGENT_UNAVAILABLE", problem)
        else:
            unknown.append(name)
    if unknown:
        missing = ", ".join(f"@{name}" for name in unknown)
        await run.main.notice("UNKNOWN_MENTION", f"no tool, skill or agent has the name {missing}")
    return found


async def _link_skills(
    run: Run, peers: Peers, offered: list[tools_pb2.Skill], named: list[tools_pb2.Skill], given: list[Upload]
) -> str:
    listed = offered if run.agent.skills else []
    links: dict[str, tools_pb2.LinkSkillResponse] = {}
    for skill in {skill.id: skill for skill in (*listed, *named, *skills.find_for_uploads(offered, given))}.values():
        if link := await skills.link_skill(run, peers, skill):
            links[skill.id] = link
    found = ((skill.name or skill.id, links[skill.id]) for skill in named if skill.id in links)
    run.main.attention.skills = {name: skills.describe_link(link) for name, link in found}
    by_id = {skill.id: skill.name or skill.id for skill in offered}
    run.main.attention.linked = {by_id[skill_id]: link.path for skill_id, link in links.items()}
    return skills.render_section(offered, {skill_id: link.path for skill_id, link in links.items()})
