"""What a peer's silence is to its caller; a scripted LlmService stands for any peer."""

from __future__ import annotations

import pytest

from headrace.errors import Overloaded, ProviderUnavailable
from services.runtime.rpc.peer_calls import translating_peer_errors
from tests.support.scripted_llm import COUNT, SILENCE_S, serving_script


async def test_a_peer_that_does_not_answer_in_time_is_unavailable() -> None:
    async with serving_script([SILENCE_S]) as suite:
        with pytest.raises(ProviderUnavailable, match="in time"), translating_peer_errors():
            await suite.stub.CountTokens(COUNT, timeout=0.1)


async def test_a_peers_own_error_stays_what_it_is() -> None:
    async with serving_script([Overloaded("full")]) as suite:
        with pytest.raises(Overloaded, match="full"), translating_peer_errors():
            await suite.stub.CountTokens(COUNT, timeout=5)
