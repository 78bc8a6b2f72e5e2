"""Skills linked into a run's workspace: listed by the agent, mentioned, or registered for an upload's type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import grpc
import structlog

from headrace.errors import HeadraceError
from headrace.v1 import tools_pb2
from services.orchestrator.agents.version import is_named
from services.orchestrator.peers.stubs import Peers, limit_tools_wait
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import find_grants
from services.orchestrator.run.scope_parts import Upload

LINK_TIMEOUT_S = 120.0
"""Timeout of a link; the first one installs the skill's requirements."""

log = structlog.get_logger()


async def list_skills(run: Run, peers: Peers) -> list[tools_pb2.Skill]:
    wait_s = limit_tools_wait(run.spending.time_left_s, is_needed=bool(run.agent.skills))
    try:
        existing = (await peers.skill_list.get_or_ask(None, partial(fetch_skills, peers, wait_s))).skills
    except HeadraceError as error:
        log.warning("skills not listed", run_id=run.id, reason=error.reason)
        return []
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        return []
    if run.version is not None and run.version.skills is not None:
        existing = pin_skills(run.version.skills, existing)
    listed = {name.casefold() for name in run.agent.skills}
    grants = find_grants(run.main)
    granted = (skill for skill in existing if grants is None or grants.allows_skill(skill.id, skill.name))
    return [skill for skill in granted if not listed or is_named(skill, listed)]


async def fetch_skills(peers: Peers, wait_s: float) -> tools_pb2.ListSkillsResponse:
    return await peers.tools.ListSkills(tools_pb2.ListSkillsRequest(), timeout=wait_s)


def pin_skills(pinned: Iterable[tools_pb2.Skill], existing: Iterable[tools_pb2.Skill]) -> list[tools_pb2.Skill]:
    """Return the skills of a version, each with its current availability."""
    why_not = {skill.id: skill.unavailable for skill in existing if skill.HasField("unavailable")}
    found: list[tools_pb2.Skill] = []
    for skill in pinned:
        shown = tools_pb2.Skill()
        shown.CopyFrom(skill)
        if skill.id in why_not:
            shown.unavailable = why_not[skill.id]
        found.append(shown)
    return found


def find_claiming(skills: Sequence[tools_pb2.Skill], uploads: Iterable[Upload]) -> list[tools_pb2.Skill]:
    types = {kind for upload in uploads for kind in (upload.kind, upload.name.rpartition(".")[2].casefold())}
    return [skill for skill in skills if types & {kind.casefold() for kind in skill.file_types}]


async def link_skill(run: Run, peers: Peers, skill: tools_pb2.Skill) -> tools_pb2.LinkSkillResponse | None:
    why = skill.unavailable
    if not why:
        await run.state.wait_for_start()
        try:
            request = tools_pb2.LinkSkillRequest(skill_id=skill.id, chat_id=run.chat_id)
            reply = await peers.tools.LinkSkill(request, timeout=LINK_TIMEOUT_S)
        except HeadraceError as error:
            why = error.message
        else:
            return tools_pb2.LinkSkillResponse(path=reply.path or skill.path, interpreter=reply.interpreter)
    await run.main.notice("SKILL_UNAVAILABLE", f"skill {skill.id!r} cannot be used: {why}")
    return None


def describe_link(link: tools_pb2.LinkSkillResponse) -> str:
    return f"{link.path}, its Python: {link.interpreter}" if link.interpreter else link.path


def render_section(skills: Sequence[tools_pb2.Skill], linked: dict[str, str]) -> str:
    lines: list[str] = []
    for skill in skills:
        if not skill.HasField("unavailable"):
            where = linked.get(skill.id) or f"not in the workspace until the user writes @{skill.id}"
            lines.append(f"- {skill.name or skill.id}: {skill.description} ({where})")
    return "\n".join(["Skills, each described in its file; read that with read_file first:", *lines]) if lines else ""
