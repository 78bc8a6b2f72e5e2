"""The agents in force: a folder of files, reloaded on change, along with those that the current tenant has stored.

A refused file leaves its agent's last good version in force; a run keeps the definition it started with. Every lookup
is for the tenant of the current identity and never returns another tenant's agents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from headrace.errors import NotFound, Overloaded, PermissionDenied
from headrace.regular_files import read_regular_file
from headrace.shown_text import shorten_line
from services.orchestrator.agents.definition import Definition, DefinitionError, parse_agent
from services.orchestrator.agents.definition.problems import Problem
from services.orchestrator.agents.definition.reading import load_object
from services.orchestrator.agents.grants import GrantsFile, find_ungranted
from services.orchestrator.agents.stored_agents import FILE_WINS, StoredAgents, TenantView, make_view
from services.runtime.auth.identity import current_tenant
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal
from services.runtime.newest import NewestDict
from services.runtime.tokens.count import ESTIMATE_ENCODING, count_text

FILE_BYTES_MAX = 1024 * 1024
"""An agent file is a page or two."""

VIEWS_MAX = 1000
"""Maximum number of tenants whose views are cached."""

PROBLEM_CHARS_MAX = 250
"""How much of a refused file's problems an error repeats."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RefusedFile:
    name: str

    problem: str
    """One problem a line, with field and rule."""

    keys: Collection[str]
    """Keys that callers may know its agent by: the file's `key`, if it can be read, and its name without `.json`."""

    publish: str | None
    """The protocols in its `publish`, separated by commas; None if the file cannot be read."""

    def __str__(self) -> str:
        problems = "; ".join(self.problem.splitlines())
        return f"{self.name} was refused: {shorten_line(problems, PROBLEM_CHARS_MAX)}"


class Registry:
    def __init__(
        self,
        folder: Path,
        default_key: str = "",
        *,
        grants: GrantsFile | None = None,
        free_tools: Collection[str] = (),
        files_win: bool = True,
    ) -> None:
        """`free_tools` are names, in lower case, of tools that tenants' agents need no grant for."""
        self._folder = folder
        self.default_key = default_key
        self.grants = grants or GrantsFile()
        self._free_tools = free_tools
        self._files_win = files_win
        self.stored = StoredAgents()
        self._views: NewestDict[str, tuple[object, object, object, TenantView]] = NewestDict(VIEWS_MAX)
        """By tenant, each preceded by the objects it was built from."""
        self._by_file: dict[str, Definition] = {}
        self._refused: dict[str, RefusedFile] = {}
        self._agents: dict[str, Definition] = {}
        self.is_loaded = False
        """Whether an agent has been valid since the start, or the folder had none."""

    def reload(self) -> None:
        """Read all files; log refused ones, and never raise."""
        files = {path.name: path for path in sorted(self._folder.glob("[!.]*.json"))}
        for name in self._by_file.keys() - files.keys():
            del self._by_file[name]
        self._refused = {}
        agents: dict[str, Definition] = {}
        for name, path in files.items():
            source = b""
            try:
                source = read_regular_file(path, FILE_BYTES_MAX)
                agent = parse_agent(source, path.stem)
                if tokens_over := _count_excess_tokens(agent):
                    log.warning("prompt larger than activePromptMaxTokens", file=path.name, tokens_over=tokens_over)
                if agent.key in agents:
                    raise DefinitionError(f"key: {agent.key!r} is defined in an earlier file already")
                self._by_file[name] = agent
            except (DefinitionError, OSError) as error:
                self._refused[name] = _make_refused(path, source, str(error))
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
            NotFound: No agent has the key; the message says why its file was refused, or lists the known keys.
            PermissionDenied: The tenant has stored the agent, but it needs something that is not granted.
            Overloaded: No agent file has been valid since the start.
        """
        view = self.view
        agent = view.agents.get(key)
        if agent is not None and agent.tenant:
            return agent
        self._check_loaded()
        if agent is not None:
            return agent
        if key in view.problems:
            raise PermissionDenied(f"agent {key!r} is not in force: {view.problems[key][0]}", agentKey=key)
        if (refused := next((file for file in self._refused.values() if key in file.keys), None)) is not None:
            given: Any = {} if refused.publish is None else {"publish": refused.publish}
            why = f"agent {key!r} is not in force: its file {refused}"
            raise NotFound(why, field="agentKey", file=refused.name, **given)
        known = ", ".join(sorted(view.agents)) or "none"
        raise NotFound(f"no agent has the key {key!r}; known keys: {known}", field="agentKey")

    def default(self) -> Definition:
        if self.default_key:
            return self.get(self.default_key)
        self._check_loaded()
        agents = self._agents or self.view.agents
        if not agents:
            raise NotFound("no agent is defined; put a file into the agents folder", field="agentKey")
        return self.get(min(agents))

    def get_reachable(self, agent: Definition) -> Mapping[str, Definition]:
        """Return the agents that a run of this one may reach; an operator's agent reaches only agents of files."""
        return self.view.reachable if agent.tenant else self._agents

    def check_granted(self, agent: Definition) -> None:
        """Raise PermissionDenied if a tenant's agent names something not granted now."""
        grants = self.grants.find_for(agent)
        if grants is None:
            return
        if found := find_ungranted(agent, grants, self._free_tools, self._operators):
            raise PermissionDenied(f"agent {agent.key!r} may not be run: {found[0]}", agentKey=agent.key)

    @property
    def _operators(self) -> frozenset[str]:
        return frozenset(key.casefold() for key in self._agents)

    @property
    def view(self) -> TenantView:
        """The agents of the current tenant."""
        tenant = current_tenant()
        stored, grants = self.stored.list_of(tenant), self.grants.current
        known = self._views.get(tenant)
        if known is not None and known[0] is self._agents and known[1] is stored and known[2] is grants:
            return known[3]
        view = make_view(self._agents, stored, grants.select(tenant), self._free_tools, files_win=self._files_win)
        self._views[tenant] = (self._agents, stored, grants, view)
        return view

    def find_problems(self, agent: Definition, tenant: str) -> list[Problem]:
        """Return why the tenant cannot use this agent: its key is taken, or something it names is not granted."""
        taken = self._files_win and agent.key.casefold() in self._operators
        grants = self.grants.current.select(tenant)
        found = find_ungranted(agent, grants, self._free_tools, self._operators)
        return [Problem("key", FILE_WINS), *found] if taken else found

    def list_refused(self) -> list[tuple[str, str, str]]:
        """Return (name, problem, key) of each refused file; `key` is the agent whose last good version is still in
        force, or ""."""
        stays = {name: agent.key for name, agent in self._by_file.items()}
        return [(name, file.problem, stays.get(name, "")) for name, file in sorted(self._refused.items())]

    def _check_loaded(self) -> None:
        if not self.is_loaded:
            first = next(iter(self._refused.values()), "none has been read")
            raise Overloaded(f"no agent file has been valid since the orchestrator's start: {first}")

    def choose(self, key: str) -> Definition:
        return self.default() if key in ("", "default") else self.get(key)

    @property
    def by_key(self) -> Mapping[str, Definition]:
        """The tenant's agents by key; a change replaces the mapping rather than mutating it."""
        return self.view.agents

    def list_shared(self) -> list[str]:
        """Return the keys of the agents in files, which all tenants have."""
        return [*self._agents]

    @property
    def by_file(self) -> Mapping[str, Definition]:
        """The last good version of each file, by the file's name."""
        return self._by_file

    def all(self) -> list[Definition]:
        agents = self.view.agents
        return [agents[key] for key in sorted(agents)]


def _make_refused(path: Path, source: bytes, problem: str) -> RefusedFile:
    with suppress(DefinitionError):
        given = load_object(source)
        protocols: Any = given.get("publish")
        publish = ",".join(map(str, protocols)) if isinstance(protocols, list) else ""
        keys = [key for key in (path.stem, given.get("key")) if isinstance(key, str)]
        return RefusedFile(path.name, problem, keys, publish)
    return RefusedFile(path.name, problem, (path.stem,), None)


def _count_excess_tokens(agent: Definition) -> int:
    """Return the number of tokens by which the prompt exceeds recap's limit."""
    recap = agent.memory.recap
    if not recap.enabled:
        return 0
    prompt = agent.primary.system_prompt + agent.primary.examples
    return max(0, count_text(prompt, ESTIMATE_ENCODING) - recap.active_prompt_max_tokens)
