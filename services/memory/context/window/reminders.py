"""Adds reminders behind the last message of a request: whatever the request does not show already.

The step with its answer keeps it, so that later requests begin with the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2
from services.memory.context.message_pairing import MessageGroup, PairedMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.v1 import memory_pb2
    from services.memory.context.window.context_view import ContextView


NO_MORE = "No longer so: what was said of {key} before."


def select_news(view: ContextView, current: Iterable[memory_pb2.Reminder], of_run: Collection[str]) -> dict[str, str]:
    """Return the texts of those that the model does not see in the view, or for keys `of_run` in its own run."""
    seen, seen_in_run = _read_told(view.groups), _read_told(view.own)
    news: dict[str, str] = {}
    for reminder in current:
        text = reminder.text or (NO_MORE.format(key=reminder.key) if reminder.key in seen else "")
        is_known = reminder.key in seen_in_run if reminder.key in of_run else seen.get(reminder.key, "") == text
        if text and not is_known:
            news[reminder.key] = text
    return news


def tell(view: ContextView, texts: Mapping[str, str]) -> ContextView:
    """Return the view with `texts` behind its last message."""
    if not texts:
        return view
    nobody = MessageGroup(PairedMessage(llm_pb2.Message(role="user"), None))
    *before, last = view.own or view.earlier or [nobody]
    told = [*before, replace(last, reminders=[*last.reminders, texts])]
    return replace(view, earlier=told) if view.earlier and not view.own else replace(view, own=told)


def _read_told(groups: Sequence[MessageGroup]) -> dict[str, str]:
    return {key: text for group in groups for told in group.reminders for key, text in told.items()}
