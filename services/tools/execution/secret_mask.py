"""Takes users' credentials out of what a tool says, whatever pieces it says it in.

What a tool has been given can stand in its output: an error of a program that prints its environment, for example.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from headrace.v1 import tools_pb2
from services.runtime.telemetry.masking import MASK, SECRET_CHARS_MIN
from services.tools.toolkit.tool import make_output


async def mask_deltas(
    deltas: AsyncGenerator[tools_pb2.ToolDelta], credentials: Iterable[str]
) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Stream the deltas with each credential replaced; the end of an output waits while it may be the begin of one."""
    secrets = list_forms(credentials)
    masks: dict[str, _StreamMask] = {}
    async with aclosing(deltas) as given:
        async for delta in given:
            if not secrets:
                yield delta
                continue
            if delta.HasField("output"):
                mask = masks.setdefault(delta.output.stream, _StreamMask(secrets))
                delta.output.delta = mask.feed(delta.output.delta)
                if delta.output.delta:
                    yield delta
                continue
            if delta.HasField("result"):
                for stream, mask in masks.items():
                    if rest := mask.finish():
                        yield make_output(stream, rest)
                delta.result.result = mask_text(delta.result.result, secrets)
            yield delta


def list_forms(credentials: Iterable[str]) -> set[str]:
    """Return what credentials look like in texts, without those that are too short to be told from words."""
    # In JSON text some characters are written otherwise.
    return {form for one in credentials if len(one) >= SECRET_CHARS_MIN for form in (one, json.dumps(one)[1:-1])}


def mask_text(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


class _StreamMask:
    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = [*secrets]
        self._kept = ""

    def feed(self, text: str) -> str:
        text = mask_text(self._kept + text, self._secrets)
        held = max(_measure_begin(text, secret) for secret in self._secrets)
        self._kept = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        rest, self._kept = self._kept, ""
        return rest


def _measure_begin(text: str, secret: str) -> int:
    """Return how many characters at the end of `text` may be the begin of `secret`."""
    return next((size for size in range(min(len(text), len(secret) - 1), 0, -1) if secret.startswith(text[-size:])), 0)
