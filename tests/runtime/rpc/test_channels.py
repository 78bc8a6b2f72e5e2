"""Channels that the machine's own settings must not bend."""

from __future__ import annotations

import pytest

from tests.support.scripted_llm import COUNT, serving_script


async def test_a_proxy_for_the_machine_is_none_for_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with serving_script(["a"]) as suite:
        assert (await suite.stub.CountTokens(COUNT, timeout=20)).tokens == 1
