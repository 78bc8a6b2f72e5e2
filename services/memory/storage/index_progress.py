"""How far an index is that is made while its store serves."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import IndexIncomplete
from headrace.v1 import common_pb2

RETRY_AFTER_S = 2.0
"""Told to callers who have to wait for the whole index."""


@dataclass(frozen=True, slots=True)
class IndexProgress:
    chats_done: int
    chats: int

    def make_error(self, wanted: str) -> IndexIncomplete:
        """Make the error of a call that cannot know `wanted` yet."""
        return IndexIncomplete(
            f"{wanted} is not known before the index is made: {self.chats_done} of {self.chats} chats; try again later",
            retry_after_s=RETRY_AFTER_S,
            chatsDone=self.chats_done,
            chats=self.chats,
        )


def describe_progress(progress: IndexProgress | None) -> common_pb2.IndexProgress | None:
    """Describe to callers how far the index was before their list was read."""
    return progress and common_pb2.IndexProgress(chats_done=progress.chats_done, chats=progress.chats)
