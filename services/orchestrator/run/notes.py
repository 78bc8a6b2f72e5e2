"""Notes that the turns of a scope leave for later turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.v1 import memory_pb2


@dataclass(frozen=True, slots=True)
class SubagentReturn:
    """The task of a sub-agent that has come back, and its result."""

    task: str
    result: str


class ScopeNotes:
    """The notes of one scope. Used by the scope's tasks alone."""

    def __init__(self, artifact_ids: Iterable[str], thoughts: list[str] | None = None) -> None:
        """`thoughts` is the list of the scope that this one works for."""
        self.last_text = ""
        """The text of its model's last answer that had one."""
        self.thoughts: list[str] = [] if thoughts is None else thoughts
        """Reasoning that readers get a summary of; the tasks of a plan add theirs."""
        self.artifact_ids = dict.fromkeys(artifact_ids)
        """Ids of the artifacts of its tools, each once, in order."""
        self._results_without_insight: list[memory_pb2.LogMessage] = []
        self._returns: dict[str, SubagentReturn] = {}

    def keep_results(self, results: Iterable[memory_pb2.LogMessage]) -> None:
        """Keep results of tools that a model is to write an insight about, before the next turn."""
        self._results_without_insight += results

    def take_results(self) -> list[memory_pb2.LogMessage]:
        """The results that were kept since the last call."""
        results, self._results_without_insight = self._results_without_insight, []
        return results

    def keep_return(self, tool_id: str, subagent: SubagentReturn) -> None:
        """Keep what the sub-agent of a call came back with, until all calls of the answer have ended."""
        self._returns[tool_id] = subagent

    def take_returns(self) -> dict[str, SubagentReturn]:
        """The sub-agents that have come back since the last call, by the id of the call."""
        returns, self._returns = self._returns, {}
        return returns
