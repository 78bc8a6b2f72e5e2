"""Fits the order of a conversation's turns to the rules of providers and of models' templates.

Users and models alternate; consecutive messages of the same role are joined. Results of tools come directly after their
calls, as `message_pairs` has checked. For Claude, Gemini and Bedrock, the first turn is the user's and the last one is
not the model's (https://github.com/langgenius/dify/issues/12340, 2025-01; https://github.com/crewAIInc/crewAI/pull/6973
and https://github.com/Arize-ai/phoenix/pull/15392, 2026-08). For a `strict` provider, the model's turn also follows the
results (https://github.com/mistralai/mistral-common, validators of roles; templates of Gemma and Mistral, 2026-11).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.v1 import llm_pb2

BLANK_LINE = "\n\n"

BETWEEN_RESULT_AND_USER = "Understood."
"""The model's text where a strict order requires its turn."""

BESIDE_ANSWER = "Go on."
"""The user's text where a strict order requires a user's turn before or after the model's."""

SHOWN_NEXT = "[shown in the next message]"

EMPTY = "(empty)"
"""Text of a user's message or a tool's result that has none: GLM, MiniMax, Volcengine, Anthropic and Bedrock refuse
blank ones (https://github.com/earendil-works/pi/pull/3309, 2026-04)."""


def fit_turns(
    messages: Iterable[llm_pb2.Message], *, is_strict: bool, has_users_ends: bool, results_hold_media: bool
) -> list[llm_pb2.Message]:
    """Return the messages in order, with `has_users_ends` from a user's to a user's or a result. Unchanged messages are
    the same objects."""
    turns: list[llm_pb2.Message] = []
    for message in _place_media(messages, results_hold_media=results_hold_media):
        if message.role == "assistant" and not (any(map(_has_content, message.content)) or message.tool_calls):
            continue
        last = turns[-1] if turns else None
        if last is not None and _are_one_turn(last, message):
            turns[-1] = _join(last, message)
        else:
            turns.append(message if message.role == "assistant" else _join_texts(message))
    filled = _fill_blanks(turns)
    return [*(_add_missing_turns(filled, is_strict=is_strict) if is_strict or has_users_ends else filled)]


def join_parts(parts: Iterable[llm_pb2.ContentPart]) -> str:
    """Return the texts of a message, with a blank line between them."""
    return BLANK_LINE.join(part.text for part in parts if part.text)


def join_system_text(messages: Iterable[llm_pb2.Message]) -> str:
    return BLANK_LINE.join(
        text for message in messages if message.role == "system" and (text := join_parts(message.content))
    )


def move_instructions(request: llm_pb2.ChatRequest) -> None:
    """Move the instructions to the beginning of the first user's message, for models without a system message."""
    text = join_system_text(request.messages)
    turns = [message for message in request.messages if message.role != "system"]
    at = next((at for at, message in enumerate(turns) if message.role == "user"), None)
    if text and at is not None:
        turns[at] = _join_texts(_replace_content(turns[at], [llm_pb2.ContentPart(text=text), *turns[at].content]))
        del request.messages[:]
        request.messages.extend(turns)


def separate_texts(request: llm_pb2.ChatRequest) -> None:
    """Leave out the texts of turns with calls, and insert a model's turn between results and the user's message."""
    turns = [_replace_content(turn, []) if turn.tool_calls else turn for turn in request.messages]
    turns = [*_add_missing_turns(turns, is_strict=True)]
    del request.messages[:]
    request.messages.extend(turns)


def is_media(part: llm_pb2.ContentPart) -> bool:
    return part.WhichOneof("part") in ("image", "audio", "file")


def _has_content(part: llm_pb2.ContentPart) -> bool:
    return bool(part.text.strip()) or is_media(part)


def _fill_blanks(turns: Iterable[llm_pb2.Message]) -> Iterable[llm_pb2.Message]:
    """Leave out blank texts, and blank instructions; the model's own texts are sent back as they were."""
    for turn in turns:
        kept = [part for part in turn.content if _has_content(part)]
        if turn.role == "assistant" or (kept and len(kept) == len(turn.content)):
            yield turn
        elif kept or turn.role != "system":
            yield _replace_content(turn, kept or [llm_pb2.ContentPart(text=EMPTY)])


def _place_media(messages: Iterable[llm_pb2.Message], *, results_hold_media: bool) -> Iterable[llm_pb2.Message]:
    """Move images, sounds and files of results to a user's message after them, for protocols with text-only results."""
    if results_hold_media:
        yield from messages
        return
    shown = llm_pb2.Message(role="user")
    for message in messages:
        if message.role != "tool":
            if shown.content:
                yield shown
                shown = llm_pb2.Message(role="user")
            yield message
        elif media := [part for part in message.content if is_media(part)]:
            shown.content.add(text=f"[in the result of {message.name or message.tool_call_id}]")
            shown.content.extend(media)
            texts = [part for part in message.content if not is_media(part)]
            yield _replace_content(message, texts or [llm_pb2.ContentPart(text=SHOWN_NEXT)])
        else:
            yield message
    if shown.content:
        yield shown


def _are_one_turn(last: llm_pb2.Message, message: llm_pb2.Message) -> bool:
    if last.role != message.role:
        return False
    # A provider's state belongs to a single answer.
    return last.role == "user" or (last.role == "assistant" and not (last.tool_calls or last.provider_state))


def _join(last: llm_pb2.Message, message: llm_pb2.Message) -> llm_pb2.Message:
    joined = llm_pb2.Message()
    joined.CopyFrom(last)
    reasoning = BLANK_LINE.join(filter(None, (last.reasoning_content, message.reasoning_content)))
    joined.MergeFrom(message)
    if reasoning:
        joined.reasoning_content = reasoning
    return joined if joined.role == "assistant" else _join_texts(joined)


def _join_texts(message: llm_pb2.Message) -> llm_pb2.Message:
    """Join adjacent texts into one, separated by blank lines."""
    parts: list[llm_pb2.ContentPart] = []
    for part in message.content:
        if parts and not is_media(part) and not is_media(parts[-1]):
            parts[-1] = llm_pb2.ContentPart(text=join_parts((parts[-1], part)))
        else:
            parts.append(part)
    return message if len(parts) == len(message.content) else _replace_content(message, parts)


def _replace_content(message: llm_pb2.Message, parts: Iterable[llm_pb2.ContentPart]) -> llm_pb2.Message:
    replaced = llm_pb2.Message()
    replaced.CopyFrom(message)
    del replaced.content[:]
    replaced.content.extend(parts)
    return replaced


def _add_missing_turns(turns: Iterable[llm_pb2.Message], *, is_strict: bool) -> Iterable[llm_pb2.Message]:
    role = "system"
    for turn in turns:
        if is_strict and turn.role == "user" and role == "tool":
            yield _make_turn("assistant", BETWEEN_RESULT_AND_USER)
        elif turn.role == "assistant" and (role == "system" or (is_strict and role == "assistant")):
            yield _make_turn("user", BESIDE_ANSWER)
        yield turn
        role = turn.role
    if role == "assistant":
        yield _make_turn("user", BESIDE_ANSWER)


def _make_turn(role: str, text: str) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)])
