"""The client's calls about whole chats: their list, their log, what stays in a model's window, and going back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.sync.calls.chat_pages import read_chat
from headrace.sync.calls.unary import UnaryCalls
from headrace.v1 import memory_pb2


class ChatCalls(UnaryCalls):
    _memory: Any

    def chats(
        self, *, scope: str | None = None, page_size: int = 0, page_token: str = ""
    ) -> memory_pb2.ListChatsResponse:
        """Return a page of chats, the last changed first: the caller's own, or with scope shared those of others."""
        request = memory_pb2.ListChatsRequest(scope=scope, page_size=page_size, page_token=page_token)
        return self._send(self._memory.ListChats, request)

    def chat(self, chat_id: str) -> memory_pb2.GetChatResponse:
        """Return a chat as history events, all of its pages."""
        return read_chat(lambda request: self._send(self._memory.GetChat, request), chat_id)

    def fork(self, chat_id: str, *, run_id: str | None = None, n: int | None = None) -> str:
        """Copy a chat, up to a run or a line where one is given, and return the id of the copy."""
        request = memory_pb2.ForkChatRequest(chat_id=chat_id, run_id=run_id, seq=n)
        reply: memory_pb2.ForkChatResponse = self._send(self._memory.ForkChat, request)
        return reply.chat_id

    def rename_chat(self, chat_id: str, title: str) -> str:
        """Give a chat another title, or with an empty one its first words again; return the title that it has now."""
        request = memory_pb2.UpdateChatRequest(chat_id=chat_id, title=title)
        reply: memory_pb2.UpdateChatResponse = self._send(self._memory.UpdateChat, request)
        return reply.title

    def share_chat(self, chat_id: str, *names: str, participants: Iterable[str] = ()) -> list[str]:
        """Let those read a chat whom `names` mean (tenant, user:NAME, role:NAME), those take part in it whom
        `participants` mean, and nobody else; return all names."""
        request = memory_pb2.ShareChatRequest(chat_id=chat_id, shared_with=names, participants=participants)
        reply: memory_pb2.ShareChatResponse = self._send(self._memory.ShareChat, request)
        return list(reply.shared_with)

    def delete_chat(self, chat_id: str) -> None:
        """Delete a chat with its log and files; ChatBusy while a run of it has not ended."""
        self._send(self._memory.DeleteChat, memory_pb2.DeleteChatRequest(chat_id=chat_id))

    def search(self, query: str, *, scope: str = "", limit: int = 0) -> list[memory_pb2.SearchHit]:
        """Return texts and titles that hold words of `query`, the best first.

        `scope` chats, insights, summaries or all.
        """
        request = memory_pb2.SearchRequest(query=query, scope=scope, limit=limit)
        reply: memory_pb2.SearchResponse = self._send(self._memory.Search, request)
        return list(reply.hits)

    def checkpoints(
        self, chat_id: str, *, kind: str = "", page_size: int = 0, page_token: str = ""
    ) -> memory_pb2.ListCheckpointsResponse:
        """Return a page of a chat's checkpoints, the latest first; `kind` query or step."""
        request = memory_pb2.ListCheckpointsRequest(
            chat_id=chat_id, kind=kind, page_size=page_size, page_token=page_token
        )
        return self._send(self._memory.ListCheckpoints, request)

    def revert(self, chat_id: str, checkpoint_id: int, *, n: int | None = None) -> int:
        """Make a chat as it was at a checkpoint, and return the number of the line that says so.

        With `n`, the checkpoint's line as it was listed, a checkpoint that is another one by now is NotFound.
        """
        request = memory_pb2.RevertRequest(chat_id=chat_id, checkpoint_id=checkpoint_id, n=n)
        reply: memory_pb2.RevertResponse = self._send(self._memory.Revert, request)
        return reply.n

    def pin(self, chat_id: str, n: int, *, remove: bool = False) -> int:
        """Pin the message of a line, or take its pin back; return the number of the line that says so, or 0."""
        request = memory_pb2.PinMessageRequest(chat_id=chat_id, n=n, remove=remove)
        reply: memory_pb2.PinMessageResponse = self._send(self._memory.PinMessage, request)
        return reply.n

    def pins(self, chat_id: str) -> list[memory_pb2.Pin]:
        """Return a chat's pinned messages, in the order of the log."""
        request = memory_pb2.ListPinsRequest(chat_id=chat_id)
        reply: memory_pb2.ListPinsResponse = self._send(self._memory.ListPins, request)
        return list(reply.pins)

    def summary(self, chat_id: str) -> memory_pb2.GetSummaryResponse:
        """Return a chat's summary; its `n` is 0 where nothing was compacted."""
        request = memory_pb2.GetSummaryRequest(chat_id=chat_id)
        return self._send(self._memory.GetSummary, request)

    def edit_summary(self, chat_id: str, n: int, text: str) -> int:
        """Give the summary of line `n` another text; StaleLease when the chat has another one by now."""
        request = memory_pb2.EditSummaryRequest(chat_id=chat_id, n=n, text=text)
        reply: memory_pb2.EditSummaryResponse = self._send(self._memory.EditSummary, request)
        return reply.n

    def state(self, chat_id: str, context_id: str = "") -> memory_pb2.GetStateResponse:
        """Return a context's session state and its version; without `context_id` the chat's own."""
        request = memory_pb2.GetStateRequest(chat_id=chat_id, context_id=context_id)
        return self._send(self._memory.GetState, request)

    def update_state(self, chat_id: str, state: str, expected_version: int, context_id: str = "") -> int:
        """Replace a context's session state, a JSON object, and return its new version.

        Raises StaleLease when the state has another version by now.
        """
        request = memory_pb2.UpdateStateRequest(
            chat_id=chat_id, context_id=context_id, expected_version=expected_version, state=state
        )
        reply: memory_pb2.UpdateStateResponse = self._send(self._memory.UpdateState, request)
        return reply.version
