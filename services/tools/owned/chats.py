"""Finds the chats of which this service keeps something, and whose they are. Everything here blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from services.runtime.auth.identity import Identity
    from services.tools.execution.effect_records import EffectRecords
    from services.tools.workspace.workspace import Workspaces


@dataclass(frozen=True, slots=True)
class ChatFolders:
    """The folders of chats, wherever they are."""

    workspaces: Workspaces
    effects: EffectRecords

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders with a folder for each chat; last the one that says whose they are."""
        return self.workspaces.root, self.effects.root, self.workspaces.owners.root

    def list_owned(self) -> Iterator[tuple[str, Identity]]:
        """Yield the chats with their owners; those from before owners were recorded are the default user's."""
        names = {path.name for root in self.roots if root.is_dir() for path in root.iterdir() if is_uuid(path.name)}
        for chat_id in sorted(names):
            owner = self.workspaces.owners.read_owner(chat_id, is_older=True)
            if owner is not None:
                yield chat_id, owner
