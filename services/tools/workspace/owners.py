"""Whose a chat is, as far as this service knows: its first user's, kept beside the workspaces.

Chats are memory's, which is not asked from here: whoever first uses a chat's workspace has it, and memory lets nobody
else begin, or go on with, a chat of that id. <root>/<chatId>/owner is on disk before anything of the chat is, out of
every command's reach, and shared by replicas as the workspaces are. These functions block.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from headrace.errors import NotFound
from services.runtime.auth import identity
from services.runtime.auth.identity import DEFAULT, Identity
from services.runtime.disk import sync_folder


class _Record(msgspec.Struct, frozen=True):
    tenant: str
    user: str


_READ = msgspec.json.Decoder(_Record)


class Owners:
    """The owners of all chats below one folder. Each use of a chat makes its folder younger, as its workspace's is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def claim(self, chat_id: str, *, is_older: bool) -> None:
        """Have the chat for the user of the current call. `is_older`: it has things from before there were owners.

        Raises:
            NotFound: It is another's.
        """
        owner = self._owner(chat_id, is_older=is_older) or self._make(chat_id, identity.require_identity())
        if owner != identity.require_identity():
            raise _not_found(chat_id)
        with suppress(FileNotFoundError):  # from before there were owners
            os.utime(self.root / chat_id)

    def check(self, chat_id: str, *, is_older: bool) -> None:
        """The same, but what is nobody's stays so."""
        if self.is_foreign(chat_id, is_older=is_older):
            raise _not_found(chat_id)

    def is_foreign(self, chat_id: str, *, is_older: bool) -> bool:
        """Whether the chat is another user's."""
        return self._owner(chat_id, is_older=is_older) not in (None, identity.require_identity())

    def _owner(self, chat_id: str, *, is_older: bool = False) -> Identity | None:
        try:
            record = _READ.decode((self.root / chat_id / "owner").read_bytes())
        except FileNotFoundError:
            return DEFAULT if is_older else None
        return Identity(record.tenant, record.user)

    def _make(self, chat_id: str, owner: Identity) -> Identity:
        """The owner, on disk; the one that another call was faster with, if there was one."""
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
        return self._owner(chat_id) or owner


def _not_found(chat_id: str) -> NotFound:
    return NotFound(f"chat {chat_id} does not exist", chatId=chat_id)
