"""Every test with a `front` runs in front of the same peers with each facade."""

from __future__ import annotations

import pytest

from tests.support.facade.fronts import FRONTS, Front


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> Front:
    return FRONTS[request.param]
