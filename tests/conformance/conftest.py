"""Every test here runs in front of the same peers with each facade; in the check the Go gateway is tried by those tests
alone that ask both at once, and by its own."""

from __future__ import annotations

import pytest

from tests.support.facade.fronts import FRONTS, Front

NIGHTLY = {"gateway"}


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in FRONTS])
def front(request: pytest.FixtureRequest) -> Front:
    return FRONTS[request.param]
