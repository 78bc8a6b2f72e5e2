"""Every test with a `front` runs once with each facade, in front of the same peers."""

import pytest

from tests.support.facade.fronts import FRONTS, Front


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> Front:
    return FRONTS[request.param]
