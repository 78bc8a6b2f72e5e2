"""The last resort for a request that does not fit its model's window.

Long texts are shortened first, older ones before the current turn: head and tail stay, with the size and the call that
reads the whole text (`read_result` by a call's id, `read_history` by line numbers). Then the oldest messages are left
out and replaced by a notice. The last messages always stay, so that no request repeats the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from services.memory.context.pairing import LEFT_OUT, MessageGroup, PairedMessage, format_notice, make_text_message
from services.memory.log.media import copy_message, describe_media, get_media, name_reader
from services.runtime.formats.json_form import is_object

if TYPE_CHECKING:
    from services.memory.context.token_counter import TokenCounter

SHORTENED = "shortened"

REASONING_DROPPED = "without its reasoning"

MEDIA_CHARS = 4_000
"""Cap at and below which images, audio and files are also described in words."""

HEAD_SHARE = 0.7
"""Share of a shortened text taken from its beginning; ends hold the errors and the totals."""


WORD_CHARS_MAX = 40
"""Maximum length of a word; a longer stretch without white space, as in scripts without spaces, may be cut anywhere."""

_GAP = re.compile(r"\s")


def shorten_text(text: str, chars_max: int, where: str) -> str:
    """Cut the middle out of a longer text, between words, and note its size and the call that reads it."""
    if len(text) <= chars_max:
        return text
    head = int(chars_max * HEAD_SHARE)
    tail = len(text) - (chars_max - head)
    if gap := _GAP.search(text[head::-1], 0, WORD_CHARS_MAX):
        head -= gap.start()
    if gap := _GAP.search(text, tail - 1, tail - 1 + WORD_CHARS_MAX):
        tail = gap.end()
    note = f"[… {tail - head:,} of {len(text):,} characters are left out here: {where} has them …]"
    short = f"{text[:head]}\n{note}\n{text[tail:]}"
    return short if len(short) < len(text) else text


def shorten_result(answer: PairedMessage, chars_max: int) -> PairedMessage:
    """Return a tool's result with its media described and at most `chars_max` characters of its text."""
    return _shorten(answer, chars_max, name_reader(answer.message, 0))


def shorten_group(group: MessageGroup, chars_max: int, *, with_reasoning: bool = True) -> MessageGroup:
    """Return the group with each text, argument and result cut to `chars_max`, and media described; shorter ones are
    unchanged."""
    where = "" if group.head.at is None else f"read_history {group.head.at.n}"
    head = _shorten(group.head, chars_max, where)
    head = _shorten_calls(head, chars_max, where)
    if not with_reasoning and (head.message.reasoning_content or head.message.provider_state):
        head = _change(head, REASONING_DROPPED)
        head.message.ClearField("reasoning_content")
        head.message.ClearField("provider_state")
    results = {index: shorten_result(answer, chars_max) for index, answer in group.results.items()}
    return replace(group, head=head, results=results)


def make_notice(first_n: int, last_n: int) -> MessageGroup:
    """Return the message that replaces lines left out."""
    text = format_notice(first_n, last_n)
    return MessageGroup(PairedMessage(make_text_message("user", text), None, form=f"{LEFT_OUT} {first_n}-{last_n}"))


def get_last_n(group: MessageGroup) -> int:
    """Return the last line of the group, or of the hidden lines that only it mentions."""
    lines = [paired.at.n for paired in group.list_messages() if paired.at is not None]
    return max([*lines, *(group.hidden or ())], default=0)


def _shorten(paired: PairedMessage, chars_max: int, where: str) -> PairedMessage:
    parts = paired.message.content
    media = chars_max <= MEDIA_CHARS and any(get_media(part) for part in parts)
    size = sum(len(part.text) for part in parts)
    if size <= chars_max and not media:
        return paired
    texts = [part.text for part in parts if not get_media(part)]
    shown = [found for part in parts if (found := get_media(part))]
    whole = "\n".join([*texts, *([describe_media(part, where) for part in shown] if media else ())])
    text = shorten_text(whole, chars_max, where)
    if text == whole and not media:
        return paired
    short = _change(paired, f"{SHORTENED} {chars_max}")
    del short.message.content[:]
    short.message.content.add(text=text)
    if not media:
        short.message.content.extend(part for part in parts if get_media(part))
    return short


def _shorten_calls(paired: PairedMessage, chars_max: int, where: str) -> PairedMessage:
    if all(len(call.arguments) <= chars_max for call in paired.message.tool_calls):
        return paired
    short = _change(paired, f"{SHORTENED} {chars_max}")
    for call in short.message.tool_calls:
        if len(call.arguments) > chars_max:
            call.arguments = _shorten_arguments(call.arguments, chars_max, where)
    return short


def _shorten_arguments(arguments: str, chars_max: int, where: str) -> str:
    """Return the arguments, still a JSON object, with long texts cut; if that is not enough, everything is cut."""
    if is_object(arguments):
        given: dict[str, Any] = json.loads(arguments)
        texts = {name: value for name, value in given.items() if isinstance(value, str)}
        room = chars_max // max(1, len(texts))
        cut = given | {name: shorten_text(text, room, where) for name, text in texts.items()}
        short = json.dumps(cut, ensure_ascii=False)
        if len(short) <= 2 * chars_max:
            return short
    return json.dumps({"shortened": shorten_text(arguments, chars_max, where)}, ensure_ascii=False)


def _change(paired: PairedMessage, form: str) -> PairedMessage:
    # Counts are cached by form, so a message changed twice has both forms.
    return PairedMessage(
        copy_message(paired.message), paired.at, paired.pieces, f"{paired.form} {form}".strip(), paired.is_error
    )


OLDER_CHARS = (16_000, 8_000, 4_000, 2_000, 1_000)
"""Caps for older texts, tried in order until the request fits."""

CURRENT_CHARS = (32_000, 16_000, 8_000, 4_000)
"""Caps for the current turn's texts, tried before anything is left out."""

LAST_CHARS = (2_000, 1_000, 500, 200)
"""Caps tried once nothing else can be left out."""

NOTICE_TOKENS = 60
"""Room of one notice."""


@dataclass(frozen=True, slots=True)
class FittedMessages:
    groups: list[MessageGroup]
    notice: str = ""
    """Note for people about shortened or missing messages; empty if there are none."""


@dataclass(slots=True)
class _Fit:
    """A request being fitted; groups are shortened as whole steps, so that equal logs give equal requests."""

    groups: Sequence[MessageGroup]
    counter: TokenCounter
    room: int
    kept: frozenset[int]
    """Indexes of the groups that must stay: a summary, the last question, and everything after the last answer."""
    shown: list[MessageGroup]
    left: set[int]

    def shorten(self, indexes: Sequence[int], chars_max: int, *, with_reasoning: bool) -> None:
        for index in indexes:
            self.shown[index] = shorten_group(self.groups[index], chars_max, with_reasoning=with_reasoning)

    def fits(self) -> bool:
        groups = [group for index, group in enumerate(self.shown) if index not in self.left]
        notices = len(_list_ranges(self.left)) * NOTICE_TOKENS
        return self.counter.count_groups(groups) + notices <= self.room

    def leave_out_oldest(self) -> bool:
        """Leave out older groups until the rest fits; return whether it does."""
        total = self.counter.count_groups(self.shown)
        for index, group in enumerate(self.shown):
            if index in self.kept:
                continue
            if index - 1 not in self.left:
                total += NOTICE_TOKENS
            self.left.add(index)
            total -= self.counter.count_group(group)
            if total <= self.room:
                return True
        return False


def fit_groups(groups: Sequence[MessageGroup], counter: TokenCounter, room: int, *, summary: bool) -> FittedMessages:
    """Return the groups reduced to `room` unscaled tokens, as far as possible; with `summary` the first group is
    one."""
    if counter.count_groups(groups) <= room:
        return FittedMessages(list(groups))
    question = max((index for index, group in enumerate(groups) if group.is_question), default=-1)
    kept = frozenset({question, len(groups) - 1} | ({0} if summary else set())) - {-1}
    fit = _Fit(groups, counter, room, kept, list(groups), set())
    _shorten_until_it_fits(fit)
    return FittedMessages(_place_notices(fit), _describe(fit))


def _shorten_until_it_fits(fit: _Fit) -> None:
    older = [index for index in range(len(fit.groups)) if index not in fit.kept]
    current = sorted(fit.kept)
    for chars_max in OLDER_CHARS:
        fit.shorten(older, chars_max, with_reasoning=chars_max > OLDER_CHARS[-1])
        if fit.fits():
            return
    for chars_max in CURRENT_CHARS:
        fit.shorten(current, chars_max, with_reasoning=True)
        if fit.fits():
            return
    if fit.leave_out_oldest():
        return
    for chars_max in LAST_CHARS:
        fit.shorten(current, chars_max, with_reasoning=chars_max > LAST_CHARS[-1])
        if fit.fits():
            return


def _place_notices(fit: _Fit) -> list[MessageGroup]:
    starts = dict(_list_ranges(fit.left))
    placed: list[MessageGroup] = []
    for index, group in enumerate(fit.shown):
        if index in starts:
            first, last = fit.groups[index], fit.groups[starts[index]]
            placed.append(make_notice(first.head.at.n if first.head.at else 0, get_last_n(last)))
        if index not in fit.left:
            placed.append(group)
    return placed


def _list_ranges(left: set[int]) -> list[tuple[int, int]]:
    """Return the first and last index of each consecutive run in `left`."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(left):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1] = (ranges[-1][0], index)
        else:
            ranges.append((index, index))
    return ranges


def _describe(fit: _Fit) -> str:
    shown = [group for index, group in enumerate(fit.shown) if index not in fit.left]
    count = sum(any(SHORTENED in paired.form for paired in group.list_messages()) for group in shown)
    parts = [f"{count:,} long messages are shortened"] if count else []
    parts += [f"{len(fit.left):,} older ones are left out"] if fit.left else []
    return f"the chat does not fit the model's window: {' and '.join(parts)}" if parts else ""
