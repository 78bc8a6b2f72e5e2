"""A copy of a log under other ids, for forks and imports.

Run ids are new, because a run belongs to one chat. Numbers, uuids and times stay, and so does everything that refers to
a position.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import ChatBusy, InvalidRequest, LogDamaged, NotFound, OutOfRange
from services.memory.log import recovery
from services.memory.log.chat_info import get_last_seq, read_info
from services.memory.log.lines import (
    Line,
    Query,
    Revocation,
    Run,
    Sharing,
    Unknown,
    add_checksum,
    decode_line,
    encode_line,
    remove_checksum,
)
from services.memory.log.messages import Range
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2
    from services.memory.log.chat import Chat
    from services.memory.storage.engine import ChatLogs
    from services.runtime.auth.identity import Identity

FORKS_MAX = 3
"""Maximum attempts at a fork whose chat is redacted each time in between."""

_ID = re.compile(rb'"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"')
_COPIES = uuid.UUID("c1d6f6a4-6c2e-4f0a-8b57-2f9d4f1f6c03")
_NONE = msgspec.Raw(b"[]")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def find_last_n(chat: Chat, run_id: str) -> int:
    """Return the number of a run's last line.

    Raises:
        NotFound: The chat has no such run.
    """
    n = max((line.n for line in chat.log if line.run_id == run_id), default=0)
    if not n:
        raise NotFound(f"run {run_id} does not exist in chat {chat.chat_id}", runId=run_id)
    return n


def check_copy(chat: Chat, n: int) -> None:
    """Refuse a chat whose first `n` lines cannot be copied.

    Raises:
        LogDamaged: Its first lines are uncertain.
        OutOfRange: It has fewer.
    """
    if chat.info.is_damaged:
        raise LogDamaged(f"the log of chat {chat.chat_id} is damaged; it can be read, not copied", chatId=chat.chat_id)
    if not 1 <= n <= len(chat.log):
        raise OutOfRange(f"seq: chat {chat.chat_id} has lines 1 to {len(chat.log)}", chatId=chat.chat_id)


def make_exists_error(chat_id: str) -> InvalidRequest:
    return InvalidRequest.of("chatId", f"chat {chat_id} exists already")


def make_changed_error(chat_id: str) -> ChatBusy:
    return ChatBusy(f"something was erased from chat {chat_id} while it was copied; try again", chatId=chat_id)


def name_copy(owner: Identity, request: memory_pb2.ForkChatRequest) -> str:
    """Return the id of the copy that `owner` requests, the same for a repeated request."""
    if not request.request_id:
        return new_uuid()
    seq = str(request.seq) if request.HasField("seq") else ""
    asked = (owner.tenant, owner.user, request.chat_id, request.run_id, seq, request.request_id)
    return str(uuid.uuid5(_COPIES, "\0".join(asked)))


async def has_copy(chats: ChatLogs, target: str) -> bool:
    """Return whether an earlier attempt has durably created the copy."""
    with suppress(NotFound):
        await chats.load_settled(target)
        return True
    return False


async def fork_chat(chats: ChatLogs, chat_id: str, n: int, owner: Identity, target: str) -> None:
    """Create a chat `target` of `owner` from the first `n` lines, again if they are redacted meanwhile; raises the
    errors of ChatLogs.fork."""
    for tries_left in reversed(range(FORKS_MAX)):
        try:
            await chats.fork(chat_id, n, owner, target)
            return
        except ChatBusy:
            if not tries_left:
                raise
        except InvalidRequest:  # it is there
            if not await has_copy(chats, target):
                raise
            return


@dataclass(frozen=True, slots=True)
class LogCut:
    log: bytes
    n: int
    run_ids: list[str]
    owner: str
    """The user who owns the copy."""
    tenant: str

    def copy_log(self, source: str, target: str) -> bytes:
        """Return the lines with new ids in every JSON string that is an id.

        Runs that the cut leaves open get an end, and so do grants, which were given in another chat.
        """
        names = {run_id.encode(): new_uuid().encode() for run_id in self.run_ids}
        names[source.encode()] = target.encode()
        texts = [_ID.sub(lambda found: b'"%b"' % names.get(found[1], found[1]), text) for text in self._cut_log()]
        log = b"".join(add_checksum(text) + b"\n" for text in texts)
        return log + _make_ends(recovery.read_log(log, target).lines, now_ms())

    def _cut_log(self) -> list[bytes]:
        """Return the first lines, without checksums; if the cut shortens an append, its line count is reduced."""
        texts = [remove_checksum(text) for text in self.log.split(b"\n", self.n)[: self.n]]
        lines = [line for text in texts if (line := decode_line(text))]
        first = next((line for line in lines if isinstance(line, Query)), None)
        for index, line in enumerate(lines):
            changes: dict[str, msgspec.Raw] = {}
            if isinstance(line, Query) and line is first and self.owner != (line.owner or line.user):
                changes["_owner"] = msgspec.Raw(msgspec.json.encode(self.owner))
            if line.lines > len(lines) - index:
                changes["_lines"] = msgspec.Raw(b"%d" % (len(lines) - index))
            # A copy has cost nothing: its lines' charges belong to the original chat.
            if isinstance(line, Run) or (not isinstance(line, Unknown) and line.charges):
                changes["_charges"] = _NONE
            # It belongs only to the user who made it.
            if isinstance(line, Sharing):
                changes["sharedWith"] = changes["participants"] = _NONE
            if changes:
                texts[index] = msgspec.json.encode(_OBJECT.decode(texts[index]) | changes)
        return texts


def _make_ends(lines: Sequence[Line], updated_at: int) -> bytes:
    if not lines:
        return b""
    facts = read_info(lines[0].chat_id, lines)
    found: list[bytes] = []
    for grant in facts.grants.values():
        if not grant.end:
            revocation = Revocation(
                n=facts.last_n + len(found) + 1,
                uuid=new_uuid(),
                chat_id=facts.chat_id,
                updated_at=updated_at,
                tenant=facts.owner.tenant,
                user=facts.owner.user,
                generation=0,
                grant_id=grant.grant_id,
            )
            found.append(encode_line(revocation))
    for run in facts.list_unfinished():
        seq = max(run.last_seq, *(get_last_seq(line) for line in lines if line.run_id == run.run_id)) + 1
        end = Run(
            n=facts.last_n + len(found) + 1,
            uuid=new_uuid(),
            chat_id=facts.chat_id,
            run_id=run.run_id,
            updated_at=updated_at,
            tenant=facts.owner.tenant,
            user=facts.owner.user,
            generation=run.generation,
            state="cancelled",
            events=Range(seq, seq),
        )
        found.append(encode_line(end))
    return b"".join(found)
