"""Notes that a scope's turns leave for later ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from headrace.v1 import memory_pb2


@dataclass(frozen=True, slots=True)
class SubagentReturn:
    task: str
    result: str


class ScopeNotes:
    def __init__(self, artifact_ids: Iterable[str], thoughts: list[str] | None = None) -> None:
        self.last_text = ""
        """The last text that was the answer, or may become it."""
        self.last_said = ""
        """The last text of a mode of an operator's own, whatever its stage."""
        self.output: str | None = None
        """The answer as JSON, where it had to have a form."""
        self.thoughts: list[str] = [] if thoughts is None else thoughts
        """Hidden reasoning, summed up for readers; the tasks of a plan add theirs."""
        self.compact_after_run: Callable[[], Awaitable[bool]] | None = None
        """Compacts the context once its run has ended; None if it need not be."""
        self.artifact_ids = dict.fromkeys(artifact_ids)
        self._results_without_insight: list[memory_pb2.LogMessage] = []
        self._returns: dict[str, SubagentReturn] = {}

    def keep_results(self, results: Iterable[memory_pb2.LogMessage]) -> None:
        """Keep results for a model that writes insights before the next turn."""
        self._results_without_insight += results

    def take_results(self) -> list[memory_pb2.LogMessage]:
        results, self._results_without_insight = self._results_without_insight, []
        return results

    def keep_return(self, tool_id: str, subagent: SubagentReturn) -> None:
        """Keep a return until all calls of the answer have ended."""
        self._returns[tool_id] = subagent

    def take_returns(self) -> dict[str, SubagentReturn]:
        returns, self._returns = self._returns, {}
        return returns
