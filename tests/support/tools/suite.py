"""A real tools server as its callers see it, and the folders behind it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.streams import reading
from headrace.v1 import tools_pb2
from services.tools.catalogue.catalogue import Catalogue

RUN = "00000000-0000-4000-8000-000000000001"

CHAT = "00000000-0000-4000-8000-000000000002"


@dataclass(frozen=True, slots=True)
class Suite:
    """The server as its callers see it, and the folders behind it."""

    stub: Any
    catalogue: Catalogue
    definitions: Path
    workspace: Path

    def call(self, tool: str, arguments: str, timeout_ms: int = 0, effect_key: str = "") -> Any:
        return self.stub.Execute(
            tools_pb2.ExecuteRequest(
                run_id=RUN,
                tool_call_id="call_1",
                tool_name=tool,
                arguments=arguments,
                effect_key=effect_key,
                chat_id=CHAT,
                timeout_ms=timeout_ms,
            )
        )

    async def execute(
        self, tool: str, arguments: str = "", timeout_ms: int = 0, effect_key: str = ""
    ) -> tuple[list[tuple[str, str]], tools_pb2.ToolOutcome]:
        """The output pieces and the result, which must come once and last."""
        pieces: list[tuple[str, str]] = []
        outcomes: list[tools_pb2.ToolOutcome] = []
        async with reading(self.call(tool, arguments, timeout_ms, effect_key)) as deltas:
            async for delta in deltas:
                assert not outcomes
                if delta.HasField("output"):
                    pieces.append((delta.output.stream, delta.output.delta))
                elif delta.HasField("result"):
                    outcomes.append(delta.result)
        (outcome,) = outcomes
        return pieces, outcome


Serve = Callable[..., AbstractAsyncContextManager[Suite]]
