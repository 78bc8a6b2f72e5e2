"""The tools that a run's model may call, by name without regard to case, and what they gave last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.v1 import llm_pb2, tools_pb2


class Toolbox:
    """Made at a run's start; its definitions stay to the run's end. Used by the run's tasks alone."""

    def __init__(self, tools: Iterable[tools_pb2.Tool] = (), results: Mapping[str, str] | None = None) -> None:
        """`results` are those of calls made before, as `results` gives them."""
        self._tools = {tool.name.casefold(): tool for tool in tools}
        self.results = dict(results or {})
        """The newest successful result of each tool, by its name without regard to case."""

    def __bool__(self) -> bool:
        return bool(self._tools)

    @property
    def tools(self) -> list[tools_pb2.Tool]:
        return [*self._tools.values()]

    @property
    def names(self) -> list[str]:
        """Ordered, for people and models."""
        return sorted(tool.name for tool in self._tools.values())

    @property
    def schemas(self) -> list[llm_pb2.ToolSchema]:
        """The tools as a request names them, in order."""
        return [
            llm_pb2.ToolSchema(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in self._tools.values()
        ]

    def find(self, name: str) -> tools_pb2.Tool | None:
        return self._tools.get(name.casefold())

    def note(self, name: str, result: str) -> None:
        """Keep a successful result: argument templates take fields from it."""
        self.results[name.casefold()] = result

    def add_results(self, results: Mapping[str, str]) -> None:
        """Take over the results of another toolbox, which are newer."""
        self.results |= results

    def last_result(self, name: str) -> str | None:
        """The newest successful result of a tool in this run."""
        return self.results.get(name.casefold())
