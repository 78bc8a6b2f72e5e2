"""Text deltas, nearly all of a stream, are coded without objects, byte for byte as protobuf would
(https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from functools import lru_cache

from headrace.v1 import agent_pb2, llm_pb2

Delta = agent_pb2.AgentDelta

_BYTES = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    if number < 128:
        return _BYTES[number]
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _encode_key(field_number: int) -> bytes:
    return varint(field_number << 3 | 2)


CONTENT = _encode_key(llm_pb2.LlmDelta.CONTENT_FIELD_NUMBER)[0]
REASONING = _encode_key(llm_pb2.LlmDelta.REASONING_FIELD_NUMBER)[0]

_SEQ, _TIMESTAMP = varint(Delta.SEQ_FIELD_NUMBER << 3), varint(Delta.TIMESTAMP_FIELD_NUMBER << 3)
_KEYS = {
    "content": _encode_key(Delta.CONTENT_DELTA_FIELD_NUMBER),
    "reasoning": _encode_key(Delta.REASONING_DELTA_FIELD_NUMBER),
}
_DELTA = _encode_key(agent_pb2.ContentDelta.DELTA_FIELD_NUMBER)

_recent = lru_cache(maxsize=1)(varint)
"""Many deltas of a fast model share a millisecond."""

_LONGER_HEADS = (3, 4, 5)
"""Head sizes for texts of more than 127 bytes; no message needs a longer head."""


def text_at(raw: bytes) -> int:
    """Return where the text begins; 0 unless the delta is one piece of valid UTF-8 text."""
    size = len(raw)
    if size < 2 or (raw[0] != CONTENT and raw[0] != REASONING):
        return 0
    if size < 130:
        at = 2 if raw[1] == size - 2 else 0
    else:
        at = next((head for head in _LONGER_HEADS if raw[1:head] == varint(size - head)), 0)
    return at if raw.isascii() or _is_utf8(raw[at:]) else 0


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class TextFrame:
    __slots__ = ("_ids", "_key", "_payload")

    def __init__(self, kind: str, block_id: str, start: Delta) -> None:
        scope = Delta()
        if start.HasField("subagent_id"):
            scope.subagent_id = start.subagent_id
        if start.HasField("task_id"):
            scope.task_id = start.task_id
        self._ids = scope.SerializeToString()
        self._key = _KEYS[kind]
        # The fields of a ReasoningDelta have the same numbers.
        self._payload = agent_pb2.ContentDelta(content_id=block_id).SerializeToString()

    def around(self, text: bytes, seq: int, timestamp: int) -> bytes:
        head = (_SEQ, varint(seq), _TIMESTAMP, _recent(timestamp), self._ids, self._key)
        block, size = self._payload, len(text)
        whole_size = len(block) + 2 + size  # with the text's key and a size of one byte
        if whole_size < 128 and size:  # nearly all: one piece of a word or two
            return b"".join((*head, _BYTES[whole_size], block, _DELTA, _BYTES[size], text))
        payload = b"".join((block, _DELTA, varint(size), text)) if text else block
        return b"".join((*head, varint(len(payload)), payload))
