"""Chooses among an agent's models: the preferred one, or one that sees images; and what they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import InvalidRequest
from services.orchestrator.agents.definition import Definition
from services.orchestrator.peers.models import list_capabilities
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope_parts import Upload
from services.orchestrator.setup import uploads
from services.orchestrator.setup.uploads import IMAGES

CAPABILITIES = {"audio": "audio", "pdf": "files"}
"""Ability that a model needs, by kind of upload."""


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


async def find_shown_kinds(run: Run, peers: Peers, given: Iterable[Upload]) -> frozenset[str]:
    """Return the kinds of `given`, audio and pdf, that the chosen models are shown.

    Models that are known to take them are; without tools, which could read the files, also models that nothing is
    known of.

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
    """A model without known capabilities is taken to see images."""
    return all(not abilities or "vision" in abilities for abilities in await list_capabilities(peers, agent))
