"""A matrix of which the check tries a few cases, and the nightly all others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def leave_to_nightly(cases: Iterable[tuple[Any, ...]], *, but: Collection[tuple[Any, ...]]) -> list[Any]:
    """Return parameters: the check has only those in `but`, each of which must be a case."""
    every = [*cases]
    assert set(but) <= {*every}, set(but) - {*every}
    return [pytest.param(*case, marks=() if case in but else pytest.mark.nightly) for case in every]
