"""A real gateway on port 0 in front of a real simulator: `asking(script)` runs both."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from headrace.v1 import llm_pb2_grpc
from services.llm_gateway.config import Config
from services.llm_gateway.server import gateway
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.simulator.server import simulator
from tests.support.llm_gateway.answering import answering
from tests.support.llm_gateway.gateway import SPARE, TEST_TIMEOUT_S, Asking, Gateway, provider_entry

ON_BOTH_LOOPS = {"test_back_pressure", "test_interaction_log", "test_disconnects", "http"}
"""Test modules and folders that also run on uvloop, as in production, because a loop decides what its transports do
when they are paused or closed, and in which context they call back."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if {item.path.stem, item.path.parent.name} & ON_BOTH_LOOPS else None


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    """Run a gateway in front of a simulator that plays a script; further fields go into the provider file's entry.

    With `answers` the provider gives those in turn instead. `spare` has the fields of a second provider, which serves
    the model sim-2 from the same simulator.
    """

    @asynccontextmanager
    async def start(
        script: object = (), *, answers: Sequence[bytes] = (), spare: dict[str, Any] | None = None, **fields: Any
    ) -> AsyncGenerator[Gateway]:
        env: dict[str, str] = {}
        config = Config(server=ServerSettings(listen="127.0.0.1:0", drain_s=0.2), config_dir=tmp_path)
        async with asyncio.timeout(TEST_TIMEOUT_S), simulator(script) as sim, answering(*answers) as provider:
            fields = ({"baseUrl": provider.base_url} if answers else {}) | fields
            path = tmp_path / "providers.json"
            entries = [provider_entry(sim.base_url, **fields)]
            if spare is not None:
                entries.append(provider_entry(sim.base_url, **SPARE | spare))
            path.write_bytes(orjson.dumps({"providers": entries}))
            async with gateway(config, env) as running, open_channel(running.addresses[0]) as channel:
                yield Gateway(llm_pb2_grpc.LlmServiceStub(channel), sim, path, env, provider.asked)

    return start
