"""Which request ids are taken from callers."""

from __future__ import annotations

import uuid

import pytest

from services.runtime.ids import safe_request_id


@pytest.mark.parametrize("given", ["a", "0af7651916cd43dd8448eb211c80319c", "Root=1-67:a/b+c=", "x" * 128])
def test_a_harmless_id_is_kept(given: str) -> None:
    assert safe_request_id(given) == given


@pytest.mark.parametrize("given", [None, "", "a\n", "a b", "ä", '"', "x" * 129])
def test_any_other_is_replaced_by_a_new_one(given: str | None) -> None:
    made = safe_request_id(given)
    assert str(uuid.UUID(made)) == made
    assert safe_request_id(given) != made
