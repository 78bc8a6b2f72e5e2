"""GetContext: the contents of the context window of a chat's next request, or of a run's.

For a run active here, it reports the run's own context. Otherwise a run that never starts prepares the request in the
same way.
"""

from __future__ import annotations

from headrace.errors import NotFound
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.registry import Registry
from services.orchestrator.lifecycle.pins import Pins
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.models import get_model_info, make_limits
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.run import Run, RunServices
from services.orchestrator.run.scope_parts import Todo, Upload
from services.orchestrator.setup import query_options, skills, uploads
from services.orchestrator.setup.run_setup import RunSetup
from services.orchestrator.setup.system_message import make_prompt_context
from services.orchestrator.setup.tool_selection import find_catalogue, find_usable_tools
from services.orchestrator.turn.context import COMPACT_COMMAND, make_load_request, make_recap_settings
from services.orchestrator.turn.conversation import select_history_tools
from services.runtime.randomness import new_uuid


async def get_context(
    peers: Peers, registry: Registry, pins: Pins, live: Run | None, request: agent_pb2.GetContextRequest
) -> agent_pb2.GetContextResponse:
    """Return the context. Raises NotFound if the chat, the agent or the run does not exist."""
    if live is not None and live.chat_id != request.chat_id:
        raise NotFound(f"run {live.id} does not exist in chat {request.chat_id}", runId=live.id)
    run = live or await _prepare_run(peers, registry, pins, request)
    scope, model = run.main, run.main.settings.model
    info = await get_model_info(peers, model.provider_key or "", model.model or "")
    limits = make_limits(info, model.max_tokens or 0)
    history_tools = Toolbox(select_history_tools(scope, scope.tools.tools)).schemas
    recap_settings = make_recap_settings(scope.agent, scope.settings.steps_max)
    loading = make_load_request(scope, limits, scope.tools.schemas, history_tools, recap_settings)
    loading.with_parts = True
    if live is not None and live.pending_query is not None:
        loading.pending_query.CopyFrom(live.pending_query)
    elif live is None and not request.HasField("run_id"):
        # A message that no model is shown: the question is not asked yet.
        loading.pending_query.CopyFrom(agent_pb2.QueryRequest(chat_id=run.chat_id, message=COMPACT_COMMAND))
    return _make_response(request, run, limits, await peers.memory.LoadContext(loading))


async def _prepare_run(peers: Peers, registry: Registry, pins: Pins, request: agent_pb2.GetContextRequest) -> Run:
    """Prepare a run, which is never started, as far as its first request requires."""
    key, version = request.agent_key, None
    if request.HasField("run_id"):
        stored = await stored_runs.get_run(peers, request.run_id)
        if stored.chat_id != request.chat_id:
            raise NotFound(f"run {request.run_id} does not exist in chat {request.chat_id}", runId=request.run_id)
        if not key and stored.agent_version_hash:
            version = await pins.find(stored.agent_key, stored.agent_version_hash)
        key = key or stored.agent_key
    else:
        chat = memory_pb2.GetChatRequest(chat_id=request.chat_id, without_events=True)
        key = key or (await stored_runs.get_chat(peers, chat)).last_agent_key
    agent = version.agent if version is not None else registry.choose(key)
    query = agent_pb2.QueryRequest(chat_id=request.chat_id, agent_key=agent.key)
    existing = registry.get_reachable(agent)
    agents = version.overlay_agents(existing) if version is not None else existing
    services = RunServices(peers, agents, grants=registry.grants)
    run = Run(request.run_id or new_uuid(), agent, query, services, version=version)
    loaded = await session_state.load(run.main, peers)
    state, _ = query_options.apply_preferences(loaded, query, run.identity.user, is_owner=True)
    earlier = state.read("uploaded_files", list[Upload], [])
    _, run.main.attention.uploads, _ = await uploads.find_uploads(run, peers, [], earlier)
    setup = RunSetup()
    if agent.working.may_use_tools:
        run.main.attention.todos = state.read("todos", list[Todo], [])
        existing = await find_catalogue(run.main, peers)
        tools, _ = find_usable_tools(run.main, existing, state.read("persistent_tools", list[str], []))
        offered = await skills.list_skills(run, peers) if existing.has_any else []
        setup = RunSetup(tools, skills.render_section(offered, {}) if tools else "")
    run.main.offer_tools(setup.tools)
    run.main.begin(await make_prompt_context(run, peers, setup))
    return run


def _make_response(
    request: agent_pb2.GetContextRequest,
    run: Run,
    limits: memory_pb2.ModelLimits,
    loaded: memory_pb2.LoadContextResponse,
) -> agent_pb2.GetContextResponse:
    response = agent_pb2.GetContextResponse(
        chat_id=run.chat_id,
        run_id=run.id if request.HasField("run_id") else None,
        agent_key=run.agent.key,
        provider_key=limits.provider_key,
        model=limits.model,
        tokens=loaded.tokens,
        context_window_tokens=limits.context_window_tokens,
        output_tokens=limits.output_tokens,
        parts=loaded.parts,
        compaction_due=loaded.compaction_due,
        fill_ratio=loaded.fill_ratio,
        compaction=loaded.compaction if loaded.HasField("compaction") else None,
        chat_usage=loaded.chat_usage if loaded.HasField("chat_usage") else None,
        between_runs_usage=loaded.between_runs_usage if loaded.HasField("between_runs_usage") else None,
    )
    last = loaded.last_call
    if loaded.HasField("last_call") and last.input_tokens:
        response.last_input_tokens = last.input_tokens
        if last.HasField("cached_tokens"):
            response.last_cached_ratio = min(1.0, last.cached_tokens / last.input_tokens)
    return response
