"""The last resort drops the oldest messages that do not fit a model's window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import ContextLengthExceeded

if TYPE_CHECKING:
    from services.memory.context.message_pairing import MessageGroup
    from services.memory.context.token_counter import TokenCounter


def truncate_groups(
    groups: Sequence[MessageGroup], counter: TokenCounter, room: int, *, summary: bool
) -> list[MessageGroup]:
    """Return the groups that fit in `room` unscaled tokens, always with the last user message.

    With `summary` the first group is one, and goes last.
    """
    costs = [counter.count_group(group) for group in groups]
    total = sum(costs)
    if total <= room:
        return list(groups)
    last_user = max((index for index, group in enumerate(groups) if group.role == "user"), default=-1)
    order = [index for index in range(len(groups)) if index != last_user]
    if summary and order[:1] == [0]:
        order = [*order[1:], 0]
    gone: set[int] = set()
    for index in order:
        if total <= room and not _begins_without_user(groups, gone):
            break
        gone.add(index)
        total -= costs[index]
    return [group for index, group in enumerate(groups) if index not in gone]


def _begins_without_user(groups: Sequence[MessageGroup], gone: set[int]) -> bool:
    first = next((group for index, group in enumerate(groups) if index not in gone), None)
    return first is not None and first.role != "user"


def check_fits(tokens: int, tokens_max: int, system: int, user: int) -> None:
    """Refuse a request that cannot be smaller; `system` and `user` are tokens of those messages."""
    if tokens > tokens_max:
        role = "system" if system > user else "user"
        raise ContextLengthExceeded(
            f"the {role} message does not fit: the request has {tokens} tokens, the model takes {tokens_max}",
            currentTokens=tokens,
            maxTokens=tokens_max,
            role=role,
        )
