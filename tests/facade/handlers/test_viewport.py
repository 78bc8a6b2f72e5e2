"""GET /api/viewport: HTML in data.html, a JSON view as the data itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.facade.scripted import VIEWS, suite


async def test_html_is_a_field_of_the_data(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade, facade.http.get("/api/viewport?viewportKey=page") as response:
        assert await response.json() == {"code": 0, "msg": "success", "data": {"html": "<p>你好</p>"}}


async def test_a_json_view_is_the_data_itself_and_its_large_integers_survive(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade, facade.http.get("/api/viewport?viewportKey=form") as response:
        assert (await response.json())["data"] == {"size": 12345678901234567890, "html": "<p>"}
        assert VIEWS["form"]["view"].replace("\n", " ") in await response.text()


@pytest.mark.parametrize(
    ("query", "status", "reason"), [("?viewportKey=x", 404, "NOT_FOUND"), ("", 400, "INVALID_REQUEST")]
)
async def test_an_unknown_or_missing_key_is_a_failure(tmp_path: Path, query: str, status: int, reason: str) -> None:
    async with suite(tmp_path) as facade, facade.http.get(f"/api/viewport{query}") as response:
        assert response.status == status
        body = await response.json()
        assert (body["data"], body["error"]["code"]) == ({}, reason)
