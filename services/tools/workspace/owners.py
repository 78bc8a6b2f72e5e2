"""Records the owner of a chat's workspace: the chat's owner if memory has named one, else its first user.

For other callers chat_rights.py asks memory first, because the chat may be shared with them. <root>/<chatId>/owner is
on disk before any file of the chat, out of every command's reach, and shared by replicas. These functions block.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

import msgspec

from headrace.errors import NotFound
from services.runtime.auth import identity
from services.runtime.auth.identity import DEFAULT, Identity
from services.runtime.files.disk import sync_folder


class _Record(msgspec.Struct, frozen=True):
    tenant: str
    user: str


CHAT_OWNER: ContextVar[tuple[str, Identity] | None] = ContextVar("chat_owner", default=None)
"""The chat, and its owner, on whose behalf the current call may work according to memory; None: it works for its
caller."""

_READ = msgspec.json.Decoder(_Record)


class Owners:
    """Owners of chats; each use of a chat renews its folder's time, for retention."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def claim_chat(self, chat_id: str, *, is_older: bool) -> None:
        """Make the current call's user the owner of a chat without one; `is_older` chats are from before owners were
        recorded.

        Raises:
            NotFound: The chat is another user's.
        """
        user = _find_user(chat_id)
        owner = self.read_owner(chat_id, is_older=is_older) or self._write_owner(chat_id, user)
        if owner != user:
            raise NotFound(f"chat {chat_id} does not exist", chatId=chat_id)
        with suppress(FileNotFoundError):  # a chat from before owners were recorded
            os.utime(self.root / chat_id)

    def is_foreign(self, chat_id: str, *, is_older: bool) -> bool:
        return self.read_owner(chat_id, is_older=is_older) not in (None, _find_user(chat_id))

    def read_owner(self, chat_id: str, *, is_older: bool = False) -> Identity | None:
        try:
            record = _READ.decode((self.root / chat_id / "owner").read_bytes())
        except FileNotFoundError:
            return DEFAULT if is_older else None
        return Identity(record.tenant, record.user)

    def _write_owner(self, chat_id: str, owner: Identity) -> Identity:
        # Another call may have been faster, so the actual owner is returned.
        folder = self.root / chat_id
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{secrets.token_hex(8)}.tmp"
        with open(temporary, "xb") as file:
            file.write(msgspec.json.encode(_Record(owner.tenant, owner.user)))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, folder / "owner")  # fails where a rename would replace
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        for place in (folder, self.root):
            sync_folder(place)
        return self.read_owner(chat_id) or owner


def _find_user(chat_id: str) -> Identity:
    """Return the user for whom the current call works in the chat."""
    known = CHAT_OWNER.get()
    return known[1] if known is not None and known[0] == chat_id else identity.require_identity()
