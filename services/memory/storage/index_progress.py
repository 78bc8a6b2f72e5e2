"""The progress of an index that is built while its store serves requests."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import IndexIncomplete
from headrace.v1 import common_pb2

RETRY_AFTER_S = 2.0
"""Suggested to callers who must wait for the whole index."""


@dataclass(frozen=True, slots=True)
class IndexProgress:
    chats_done: int
    chats: int

    def make_error(self, wanted: str) -> IndexIncomplete:
        """Create the error for a call that cannot know `wanted` yet."""
        return IndexIncomplete(
            f"{wanted} is not known before the index is made: {self.chats_done} of {self.chats} chats; try again later",
            retry_after_s=RETRY_AFTER_S,
            chatsDone=self.chats_done,
            chats=self.chats,
        )


def describe_progress(progress: IndexProgress | None) -> common_pb2.IndexProgress | None:
    """Return, for callers, the index's progress before their list was read."""
    return progress and common_pb2.IndexProgress(chats_done=progress.chats_done, chats=progress.chats)
