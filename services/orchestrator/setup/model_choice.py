"""Chooses among an agent's models: the preferred one, or one that sees images."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import InvalidRequest
from services.orchestrator.agents.definition import Definition
from services.orchestrator.peers.model_info import get_model_info
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.attention import Upload
from services.orchestrator.run.run import Run
from services.orchestrator.setup.uploads import IMAGES


async def choose_model(run: Run, peers: Peers, state: session_state.State, given: Iterable[Upload]) -> None:
    """Set the model of all stages.

    Raises:
        InvalidRequest: There are images, and no model of the agent sees them.
    """
    agent = run.agent.with_model(state.read("model_pref", str, "")) or run.agent
    if any(upload.mime_type in IMAGES for upload in given) and not await _sees_images(agent, peers):
        seeing = run.agent.with_model("vision")
        if seeing is None:
            model = agent.primary.model.model
            raise InvalidRequest.of("references", f"model {model!r} sees no images, and the agent has no models.vision")
        agent = seeing
    run.main.use_agent(agent)


async def _sees_images(agent: Definition, peers: Peers) -> bool:
    """A model without known capabilities is taken to see images."""
    models = {(stage.model.provider_key or "", stage.model.model or "") for stage in agent.stages}
    for provider_key, model in sorted(models):
        capabilities = (await get_model_info(peers, provider_key, model)).capabilities
        if capabilities and "vision" not in capabilities:
            return False
    return True
