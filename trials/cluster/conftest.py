"""One cluster for all checks, with the chart installed."""

from collections.abc import Generator

import pytest

from trials.cluster.database import make_server
from trials.cluster.installs import Install, find_prod, install_prod
from trials.cluster.outside import install_simulator
from trials.cluster.running import running_cluster


@pytest.fixture(scope="session")
def cluster() -> Generator[None]:
    with running_cluster():
        yield


@pytest.fixture(scope="session")
def prod(cluster: None) -> Install:
    make_server()
    install_simulator()
    return find_prod() or install_prod()
