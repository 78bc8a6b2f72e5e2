"""The page of tried clients has no row but those that tests hold."""

from tests.support.clients.catalogue import CLIENTS, OTHERS, PAGE


def test_each_row_is_a_client_that_is_tried() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert sorted(row for row in rows if row != "client") == sorted([*(client.name for client in CLIENTS), *OTHERS])
