"""What model calls have cost, as lines of the log carry it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from headrace.v1 import memory_pb2


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


def decode_charges(given: Iterable[memory_pb2.Charge]) -> list[Charge]:
    return [Charge(*(getattr(charge, name) for name in Charge.__struct_fields__)) for charge in given]


def encode_charges(charges: Iterable[Charge]) -> Iterator[memory_pb2.Charge]:
    for charge in charges:
        yield memory_pb2.Charge(**{name: getattr(charge, name) for name in Charge.__struct_fields__})
