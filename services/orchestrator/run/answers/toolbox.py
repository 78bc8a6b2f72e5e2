"""The tools of a scope, found by name without regard to case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.v1 import llm_pb2, tools_pb2


class Toolbox:
    def __init__(self, tools: Iterable[tools_pb2.Tool] = (), results: Mapping[str, str] | None = None) -> None:
        self._tools = {tool.name.casefold(): tool for tool in tools}
        self.results = dict(results or {})
        """Successful results by case-folded name."""

    def __bool__(self) -> bool:
        return bool(self._tools)

    @property
    def tools(self) -> list[tools_pb2.Tool]:
        return [*self._tools.values()]

    @property
    def names(self) -> list[str]:
        return sorted(tool.name for tool in self._tools.values())

    @property
    def schemas(self) -> list[llm_pb2.ToolSchema]:
        return [
            llm_pb2.ToolSchema(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in self._tools.values()
        ]

    def find(self, name: str) -> tools_pb2.Tool | None:
        return self._tools.get(name.casefold())

    def note(self, name: str, result: str) -> None:
        self.results[name.casefold()] = result

    def add_results(self, results: Mapping[str, str]) -> None:
        self.results |= results

    def last_result(self, name: str) -> str | None:
        return self.results.get(name.casefold())
