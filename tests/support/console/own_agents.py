"""A tenant's own agents in a dictionary, for the console's editor."""

from dataclasses import dataclass, field

from headrace.errors import NotFound, VersionConflict
from headrace.v1 import agent_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.problems import find_problems
from services.orchestrator.agents.grants import find_ungranted, parse_grants
from services.orchestrator.lifecycle.publishing import make_problem

GRANTS = parse_grants(b"grants: [{tenants: ['*'], models: ['simulator/*'], tools: [weather]}]").select("default")


@dataclass
class OwnAgents:
    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """All definitions put, by key, the last one active; a repeated text keeps its first version number."""

    def check(self, definition: str) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
        agent, found = find_problems(
            definition.encode(), "", lambda agent_definition: find_ungranted(agent_definition, GRANTS, (), ())
        )
        return agent, [make_problem(problem) for problem in found]

    def put(self, request: agent_pb2.PutAgentRequest) -> agent_pb2.PutAgentResponse:
        agent, problems = self.check(request.definition)
        if agent is None:
            return agent_pb2.PutAgentResponse(problems=problems)
        self._check_version(agent.key, request.expected_version)
        self.texts.setdefault(agent.key, []).append(request.definition)
        description = agent_pb2.Agent(key=agent.key, owner="tenant", version=self.find_version(agent.key))
        return agent_pb2.PutAgentResponse(problems=problems, is_stored=True, agent=description)

    def delete(self, request: agent_pb2.DeleteAgentRequest) -> agent_pb2.DeleteAgentResponse:
        self._check_version(request.agent_key, request.expected_version)
        del self.texts[request.agent_key]
        return agent_pb2.DeleteAgentResponse()

    def list_stored(self) -> agent_pb2.ListStoredAgentsResponse:
        agents = (
            agent_pb2.StoredAgent(
                key=key, version=self.find_version(key), updated_at=1_700_000_000_000, updated_by="ada"
            )
            for key in sorted(self.texts)
        )
        return agent_pb2.ListStoredAgentsResponse(agents=agents)

    def get(self, request: agent_pb2.GetAgentDefinitionRequest) -> agent_pb2.GetAgentDefinitionResponse:
        if request.agent_key not in self.texts:
            raise NotFound("the tenant has no such agent")
        version = request.version or self.find_version(request.agent_key)
        text = self._list_distinct(request.agent_key)[version - 1]
        return agent_pb2.GetAgentDefinitionResponse(definition=text, version=version)

    def list_versions(self, key: str) -> agent_pb2.ListAgentVersionsResponse:
        numbers = range(len(self._list_distinct(key)), 0, -1)
        versions = (agent_pb2.AgentVersion(agent_key=key, version=number, created_at=1_000) for number in numbers)
        return agent_pb2.ListAgentVersionsResponse(versions=versions)

    def find_version(self, key: str) -> int:
        texts = self.texts.get(key, [])
        return self._list_distinct(key).index(texts[-1]) + 1 if texts else 0

    def _list_distinct(self, key: str) -> list[str]:
        return list(dict.fromkeys(self.texts[key]))

    def _check_version(self, key: str, expected: int) -> None:
        if (version := self.find_version(key)) != expected:
            raise VersionConflict(f"agent {key!r}: version {version} is in force, not {expected}", version=version)
