"""A URL may name several servers of one database."""

from __future__ import annotations

import pytest

from services.memory.storage.postgres.connection.hosts import split_hosts


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("postgresql://u:p@h/db", ["postgresql://u:p@h/db"]),
        ("postgresql://u:p@h:1,i:2/db?sslmode=require", ["u:p@h:1/db?sslmode=require", "u:p@i:2/db?sslmode=require"]),
        ("postgresql://[::1]:1,[::2]/db", ["[::1]:1/db", "[::2]/db"]),
        ("postgresql://u@/db?host=/a", ["u@/db?host=%2Fa&port="]),
        ("postgresql://u@/db?host=/a,/b", ["u@/db?host=%2Fa&port=", "u@/db?host=%2Fb&port="]),
        ("postgresql://u@/db?host=a,b&port=1,2", ["u@/db?host=a&port=1", "u@/db?host=b&port=2"]),
        ("postgresql://u@/db?host=a,b&port=1", ["u@/db?host=a&port=1", "u@/db?host=b&port=1"]),
    ],
)
def test_each_server_has_a_url(url: str, each: list[str]) -> None:
    assert [one.removeprefix("postgresql://") for one in split_hosts(url)] == [
        one.removeprefix("postgresql://") for one in each
    ]
