"""Which cases of a series belong to the check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def check_first(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """The cases of a parametrized test, of which the check runs the first and the nightly the others."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=[pytest.mark.nightly] * (at >= count)) for at, row in enumerate(rows)]
