"""A backup made under load, restored into an empty installation."""

from collections.abc import Generator

import pytest

from trials.cluster.check_restarts import STREAMS, assert_nothing_lost
from trials.cluster.installs import Install, prepare_prod, remove_prod
from trials.cluster.loading import asking


@pytest.fixture
def restored(prod: Install) -> Generator[Install]:
    install = prepare_prod("restored")
    yield install
    remove_prod(install)


def test_what_is_backed_up_in_use_is_there_where_it_is_restored(prod: Install, restored: Install) -> None:
    with asking(prod, STREAMS) as seen, asking(prod, STREAMS, "slow") as slow:
        _, before = prod.list_chats(50)
        prod.operator.follow("backup.md", "On Kubernetes")
    assert_nothing_lost(seen)
    assert_nothing_lost(slow)
    restored.operator.run(f"mv {prod.operator.folder}/backup.tar .")
    restored.operator.follow("backup.md", "Restore")
    restored.operator.follow("install.md", "4. Start it")
    restored.operator.follow("backup.md", "What is there")
    assert len(before) > STREAMS
    assert restored.list_chats(200)[1] >= before
    status, body = restored.ask()
    assert (status, '"type":"run.complete"' in body) == (200, True)
