from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.tenants.ground import Ground, preparing_ground


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Ground]:
    async with preparing_ground(tmp_path_factory.mktemp("ground")) as ground:
        yield ground
