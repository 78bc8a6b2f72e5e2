"""Every test with a `front` runs in front of the same peers with each facade."""

import pytest

from tests.support.facade.fronts import FRONTS, Front


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> Front:
    return FRONTS[request.param]
