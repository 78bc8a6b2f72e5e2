"""What model calls have cost, as lines of the log carry it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import force_setattr

from headrace.v1 import memory_pb2

COUNT_MAX = 10**15
"""Greatest number of a charge: a million US dollars for a model call, more tokens than anybody has used. Greater ones
count as this one, and negative ones as 0."""


class Charge(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    agent_key: str = ""
    model: str = ""
    """The model that was asked, as provider/model; empty where it is not known."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_nano_usd: int = 0
    """Billionths of a US dollar: a short answer of a cheap model costs a few thousand."""
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        # Whoever serves a model says what it has used, and sums must stay numbers that every index takes.
        for name in _COUNTS:
            if not 0 <= (count := getattr(self, name)) <= COUNT_MAX:
                force_setattr(self, name, min(max(count, 0), COUNT_MAX))


_COUNTS = tuple(name for name in Charge.__struct_fields__ if name.endswith(("_tokens", "_calls", "_usd")))


def decode_charges(given: Iterable[memory_pb2.Charge]) -> list[Charge]:
    return [Charge(*(getattr(charge, name) for name in Charge.__struct_fields__)) for charge in given]


def encode_charges(charges: Iterable[Charge]) -> Iterator[memory_pb2.Charge]:
    for charge in charges:
        yield memory_pb2.Charge(**{name: getattr(charge, name) for name in Charge.__struct_fields__})
