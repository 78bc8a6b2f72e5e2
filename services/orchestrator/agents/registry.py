"""The agents in force: a folder of files, reloaded on change.

A refused file leaves its agent's last good version in force; a run keeps the definition it started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from headrace.errors import NotFound, Overloaded
from headrace.regular_files import read_regular_file
from services.orchestrator.agents import recap
from services.orchestrator.agents.definition import Definition, DefinitionError, parse_agent
from services.runtime.refused_files import REFUSED_FILES, report_refusal

FILE_BYTES_MAX = 1024 * 1024
"""An agent file is a page or two."""

log = structlog.get_logger()


class Registry:
    def __init__(self, folder: Path, default_key: str = "") -> None:
        self._folder = folder
        self._default_key = default_key
        self._by_file: dict[str, Definition] = {}
        self._refused: dict[str, str] = {}
        self._agents: dict[str, Definition] = {}
        self.is_loaded = False
        """Whether an agent was valid since the start, or there was none."""

    def reload(self) -> None:
        """Read all files; log refused ones, and never raise."""
        files = {path.name: path for path in sorted(self._folder.glob("*.json"))}
        for name in self._by_file.keys() - files.keys():
            del self._by_file[name]
        self._refused = {}
        agents: dict[str, Definition] = {}
        for name, path in files.items():
            try:
                agent = _read_file(path)
                if agent.key in agents:
                    raise DefinitionError(f"key: {agent.key!r} is defined in an earlier file already")
                self._by_file[name] = agent
            except (DefinitionError, OSError) as error:
                self._refused[name] = str(error)
                has_last_good = name in self._by_file
                report_refusal(
                    "agent file refused", file=name, problem=str(error), last_good_version_stays=has_last_good
                )
            if name in self._by_file:
                agents.setdefault(self._by_file[name].key, self._by_file[name])
        self._agents = agents
        REFUSED_FILES.labels("agents").set(len(self._refused))
        self.is_loaded |= bool(agents) or not files
        log.info("agents in force", agents=sorted(self._agents), refused=sorted(self._refused))

    def get(self, key: str) -> Definition:
        """Return the agent.

        Raises:
            NotFound: There is none; the message lists the known keys.
            Overloaded: No agent file was valid since the start.
        """
        self._check_loaded()
        agent = self._agents.get(key)
        if agent is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise NotFound(f"no agent has the key {key!r}; known keys: {known}", field="agentKey")
        return agent

    def default(self) -> Definition:
        if self._default_key:
            return self.get(self._default_key)
        self._check_loaded()
        if not self._agents:
            raise NotFound("no agent is defined; put a file into the agents folder", field="agentKey")
        return self._agents[min(self._agents)]

    def list_refused(self) -> list[tuple[str, str, str]]:
        """Return name, problem, and the key that its last good version keeps in force or "", of each refused file."""
        stays = {name: agent.key for name, agent in self._by_file.items()}
        return [(name, problem, stays.get(name, "")) for name, problem in sorted(self._refused.items())]

    def _check_loaded(self) -> None:
        if not self.is_loaded:
            raise Overloaded("no agent file was valid since the orchestrator's start; its log says what is wrong")

    def choose(self, key: str) -> Definition:
        return self.default() if key in ("", "default") else self.get(key)

    @property
    def by_key(self) -> Mapping[str, Definition]:
        """The agents by key; a reload replaces the mapping rather than changing it."""
        return self._agents

    @property
    def by_file(self) -> Mapping[str, Definition]:
        """The last good version of each file, by the file's name."""
        return self._by_file

    def all(self) -> list[Definition]:
        return [self._agents[key] for key in sorted(self._agents)]


def _read_file(path: Path) -> Definition:
    agent = parse_agent(read_regular_file(path, FILE_BYTES_MAX), path.stem)
    if tokens_over := recap.count_excess_tokens(agent):
        log.warning("prompt larger than activePromptMaxTokens", file=path.name, tokens_over=tokens_over)
    return agent
