"""Ids: UUIDs of version 4, from the source that a context has."""

import uuid
from contextvars import copy_context
from random import Random

from services.runtime.randomness import RANDOM, new_uuid


def test_an_id_is_a_uuid_of_version_4_with_each_seed() -> None:
    def make_ids(seed: int) -> list[str]:
        RANDOM.set(Random(seed))
        return [new_uuid() for _ in range(100)]

    ids = [text for seed in range(10) for text in copy_context().run(make_ids, seed)]
    assert [str(uuid.UUID(text)) for text in ids] == ids
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in ids} == {(4, uuid.RFC_4122)}
    assert len({*ids}) == len(ids)
    assert copy_context().run(make_ids, 3) == copy_context().run(make_ids, 3)
