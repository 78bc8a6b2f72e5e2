"""Sums of costs have no rounding errors."""

import uuid
from contextvars import copy_context
from random import Random

import pytest

from headrace.v1 import common_pb2
from services.llm_gateway.providers.provider_file import Price
from services.runtime.randomness import RANDOM, new_uuid
from services.runtime.usage import sum_usages


@pytest.mark.parametrize("costs", [(0.0001, 0.0002), (0.1, 0.2), (0.7, 0.1, 0.1), (1e-9,) * 7])
def test_a_sum_of_costs_has_no_more_digits_than_they_have(costs: tuple[float, ...]) -> None:
    total = sum_usages(common_pb2.Usage(cost_usd=cost) for cost in costs)
    assert total is not None
    assert str(total.cost_usd) == str(round(sum(costs), 9))
    assert len(str(total.cost_usd)) <= 7


@pytest.mark.parametrize(("tokens", "cached", "cost"), [(3, 0, 3e-07), (1000, 700, 5.1e-05)])
def test_the_cost_of_a_call_is_in_billionths(tokens: int, cached: int, cost: float) -> None:
    price = Price.model_validate({"inputPerMTok": 0.1, "outputPerMTok": 0.7, "cachedInputPerMTok": 0.03})
    assert price.count_dollars(common_pb2.Usage(input_tokens=tokens, cached_tokens=cached)) == cost


def test_an_id_is_a_uuid_of_version_4_with_each_seed() -> None:
    def make_ids(seed: int) -> list[str]:
        RANDOM.set(Random(seed))
        return [new_uuid() for _ in range(100)]

    ids = [text for seed in range(10) for text in copy_context().run(make_ids, seed)]
    assert [str(uuid.UUID(text)) for text in ids] == ids
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in ids} == {(4, uuid.RFC_4122)}
    assert len({*ids}) == len(ids)
    assert copy_context().run(make_ids, 3) == copy_context().run(make_ids, 3)
