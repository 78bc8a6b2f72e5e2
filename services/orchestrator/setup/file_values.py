"""Values of the placeholders for files: what the workspace has when a stage begins, whoever has made it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from headrace.v1 import tools_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import list_workspace
from services.orchestrator.run.scope import Scope

NAMES = ("file_names", "files")

FILES_SHOWN_MAX = 200
"""Further files are counted, not named."""

SKILLS = "skills/"
"""Folder of the skills' own files, which nobody has made here."""


async def load_file_values(scope: Scope, peers: Peers, settings: StageSettings) -> dict[str, str]:
    """Return the placeholders' values; none for a prompt without them, or one that the log has already."""
    if not any(prompts.uses_placeholder(settings.system_prompt, name) for name in NAMES):
        return {}
    run = scope.run
    listed = await list_workspace(peers, run.chat_id)
    if listed is None:
        known = (tools_pb2.FileInfo(path=upload.path) for upload in run.main.attention.uploads)
        listed = tools_pb2.ListFilesResponse(files=known)
    files = [file for file in listed.files if not file.path.startswith((SKILLS, "."))]
    # What the caller keeps elsewhere has a name and no file here.
    elsewhere = [reference.name for reference in run.query.references if reference.name and not reference.meta]
    return {
        "file_names": _join([*map(_quote, (file.path for file in files)), *map(_quote, elsewhere)]),
        "files": _join([*map(_describe, files), *map(_quote, elsewhere)]),
    }


def _describe(file: tools_pb2.FileInfo) -> str:
    facts = ", ".join(fact for fact in (file.mime_type, f"{file.size_bytes} bytes" if file.size_bytes else "") if fact)
    return f"{_quote(file.path)} ({facts})" if facts else _quote(file.path)


def _quote(name: str) -> str:
    """Keep a name, which is anybody's text, on its line."""
    return name if name.isprintable() else json.dumps(name, ensure_ascii=False)


def _join(lines: Iterable[str]) -> str:
    shown = [*lines]
    more = len(shown) - FILES_SHOWN_MAX
    return "\n".join([*shown[:FILES_SHOWN_MAX], f"… and {more} more"] if more > 0 else shown)
