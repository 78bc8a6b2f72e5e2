"""Access for the current user; other users' chats are reported as missing.

A chat's owner is in its first line, and Chat.admit checks appends. Owners share chats with others of the tenant, to
read or to take part. The store's own work (retention, export, takeover) is not limited.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest, NotFound
from services.memory.log.chat import Chat, chat_not_found, check_participant
from services.runtime.auth import identity
from services.runtime.auth.access import PARTICIPATING, find_access
from services.runtime.newest import NewestDict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headrace.v1 import memory_pb2
    from services.memory.storage.engine import Engine
    from services.memory.storage.index_rows import ChatEntry
    from services.runtime.auth.access import Access
    from services.runtime.auth.identity import Identity

RUNS_MAX = 10_000
"""Maximum runs with cached users; each live run renews its lease every few seconds."""


class ChatAccess:
    def __init__(self, engine: Engine) -> None:
        self._chats = engine.chats
        self._index = engine.index
        self._run_users: NewestDict[str, Identity] = NewestDict(RUNS_MAX)
        """Users by run; safe to cache, because a run's user never changes."""

    async def load_chat(self, chat_id: str) -> Chat:
        """Return the user's own chat. Raises NotFound."""
        chat = await self._chats.load(chat_id)
        if chat.info.owner != identity.require_identity():
            raise chat_not_found(chat_id)
        return chat

    async def load_changed_chat(
        self, chat_id: str, request_id: str, is_changed: Callable[[Chat], bool] = lambda _: False
    ) -> Chat:
        """Return the user's own chat. If it already has the request's line, or `is_changed` returns true, wait until
        that is durable.

        Raises NotFound.
        """
        chat = await self.load_chat(chat_id)
        is_made = request_id in chat.appends or is_changed(chat)
        return await self._chats.load_settled(chat_id) if is_made else chat

    async def read_chat(self, chat_id: str) -> Chat:
        """Return a chat that the user may read, as owner or through sharing. Raises NotFound."""
        chat = await self._chats.load(chat_id)
        if not _find_access_to(chat):
            raise chat_not_found(chat_id)
        return chat

    async def load_working_chat(self, chat_id: str) -> Chat:
        """Return a chat for a run of the user, who participates in it or did when the run began.

        Raises:
            NotFound: The user may not work in it, or only read it.
        """
        chat = await self._chats.load(chat_id)
        if _find_access_to(chat) in PARTICIPATING:
            return chat
        caller = identity.require_identity()
        if caller.tenant == chat.info.owner.tenant and chat.info.has_run_of(caller.user):
            return chat
        raise chat_not_found(chat_id)

    async def load_chat_or_empty(self, chat_id: str) -> Chat:
        """Like load_working_chat, but return an empty chat if there is none; it refuses appends if another user owns
        the id."""
        try:
            return await self.load_working_chat(chat_id)
        except NotFound:
            return Chat.empty(chat_id)

    async def load_copied_chat(self, chat_id: str) -> Chat:
        """Return a chat in which the user participates. Raises NotFound, PermissionDenied."""
        chat = await self._chats.load(chat_id)
        check_participant(chat_id, chat.info, identity.require_identity())
        return chat

    async def find_own_row(self, chat_id: str) -> ChatEntry:
        """Return the row of the user's own chat, with its stored texts. Raises NotFound."""
        entry = await self._index.find_row(chat_id)
        if entry.owner != identity.require_identity():
            raise chat_not_found(chat_id)
        return entry

    async def find_readable(self, chat_id: str) -> ChatEntry:
        """Return the row of a chat that the user may read. Raises NotFound."""
        entry = await self._index.find_entry(chat_id)
        if not _find_access_by(entry):
            raise chat_not_found(chat_id)
        return entry

    async def may_read_blobs(self, chat_id: str) -> bool:
        """Return whether the user may read the chat or has a run in it, or the chat does not exist yet."""
        try:
            await self.find_readable(chat_id)
        except NotFound:
            return await self.may_use_id(chat_id)
        return True

    async def find_chat_of_run(self, run_id: str) -> str | None:
        """Return the chat of a run if the run is the user's, or the user participates in its chat; else None."""
        chat_id = await self._index.find_chat_of_run(run_id)
        if chat_id is None or await self.owns_run(run_id):
            return chat_id
        return chat_id if _find_access_by(await self._index.find_entry(chat_id)) in PARTICIPATING else None

    async def find_readable_chat_of_run(self, run_id: str) -> str | None:
        chat_id = await self._index.find_chat_of_run(run_id)
        if chat_id is None:
            return None
        return chat_id if _find_access_by(await self._index.find_entry(chat_id)) else None

    async def find_own_unfinished(self, run_id: str) -> ChatEntry | None:
        """Return the row of the chat with this unfinished run of the user; None if there is none."""
        chat_id = await self._index.find_chat_of_run(run_id) if await self.owns_run(run_id) else None
        if chat_id is None:
            return None
        is_open = any(run.run_id == run_id for run in await self._index.list_unfinished(chat_id))
        return await self._index.find_entry(chat_id) if is_open else None

    async def may_use_id(self, chat_id: str) -> bool:
        """Return whether the user may work in the chat, or it does not exist yet."""
        try:
            entry = await self._index.find_entry(chat_id)
        except NotFound:
            return True
        if _find_access_by(entry) in PARTICIPATING:
            return True
        caller = identity.require_identity()
        unfinished = await self._index.list_unfinished(chat_id)
        return any((run.tenant, run.user) == (caller.tenant, caller.user) for run in unfinished)

    async def owns_run(self, run_id: str) -> bool:
        """Return whether the run is the user's, in any chat."""
        user = self._run_users.get(run_id)
        if user is None:
            user = await self._index.find_run_user(run_id)
            if user is None:
                return False
            self._run_users[run_id] = user
        return user == identity.require_identity()


def _find_access_to(chat: Chat) -> Access:
    info = chat.info
    return find_access(identity.require_identity(), info.owner, info.shared_with, info.participants)


def _find_access_by(entry: ChatEntry) -> Access:
    return find_access(identity.require_identity(), entry.owner, entry.shared_names, entry.participant_names)


_NAME = re.compile(r"tenant|user:[!-~]{1,128}|role:[!-+\--~]{1,64}")


def parse_shares(request: memory_pb2.ShareChatRequest) -> tuple[list[str], list[str]]:
    """Return the readers that a request names, and the participants among them: sorted names without duplicates.

    Raises:
        InvalidRequest: A word is not a valid name.
    """
    participants = _parse_names("participants", request.participants)
    return _parse_names("sharedWith", {*request.shared_with, *participants}), participants


def _parse_names(field: str, names: Iterable[str]) -> list[str]:
    found = sorted(set(names))
    if any(_NAME.fullmatch(name) is None for name in found):
        raise InvalidRequest.of(field, "must be names: tenant, user:NAME or role:NAME")
    return found


def describe_access(owner: Identity, shared_with: Collection[str], participants: Collection[str]) -> dict[str, Any]:
    """Return the fields for a chat's owner and the caller's access; only the owner sees whom it is shared with."""
    access = find_access(identity.require_identity(), owner, shared_with, participants)
    shown: dict[str, Any] = {"owner": owner.user, "access": access}
    return shown | ({"shared_with": shared_with, "participants": participants} if access == "own" else {})
