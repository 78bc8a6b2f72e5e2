"""Definition files that are not regular files: a pipe without a writer, an endless device, a folder."""

import asyncio
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.cli.supervisor.child_environment import select_environment
from headrace.errors import ProviderAuthentication, SkillUnavailable
from headrace.regular_files import read_regular_file
from headrace.tls import Tls
from services.llm_gateway.providers.catalogue import Catalogue as Providers
from services.llm_gateway.providers.credentials import Credentials
from services.llm_gateway.providers.provider_file import Provider
from services.orchestrator.agents.registry import Registry
from services.orchestrator.run.approvals.rules import RulesFile
from services.runtime.auth.api_keys import ApiKeys
from services.runtime.auth.jwts import FileKeys
from services.runtime.process.transport import Certificates
from services.simulator.script import BadScript, read_script
from services.tools.mcp_client.settings import BadMcpFile, read_servers
from services.tools.skills.environments import SkillEnvironments
from services.tools.skills.linker import read_files
from services.tools.skills.skill_folder import Skill, read_skill
from tests.support.catalogue import read_catalogue

EXAMPLES = Path(__file__).parents[1] / "examples"

KINDS = ("pipe", "endless device", "folder")


def put(path: Path, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_is_no_regular_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = put(tmp_path / "thing", kind)
    with pytest.raises(OSError, match=f"not a regular file: '{path}'"):
        read_regular_file(path, 100)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "thing"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        with pytest.raises(OSError, match=str(path)):
            read_regular_file(path, 100)


def test_a_link_to_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_regular_file(link, 100) == b"x" * 100
    with pytest.raises(OSError, match=f"larger than 99 bytes: '{link}'"):
        read_regular_file(link, 99)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none", 99)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for path in (put(tmp_path / kind, kind) for kind in KINDS):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular_file(path, 100)
    assert os.listdir("/proc/self/fd") == before


def logged(reload: Callable[[], object]) -> str:
    with capture_logs() as lines:
        reload()
    return str([line for line in lines if line["log_level"] == "error"])


def told(kind: type[Exception], read: Callable[[], object]) -> str:
    with pytest.raises(kind) as raised:
        read()
    return str(raised.value)


def read_agents(folder: Path, kind: str) -> str:
    put(folder / "bad.json", kind)
    (folder / "good.json").write_bytes((EXAMPLES / "agents" / "assistant.json").read_bytes())
    registry = Registry(folder)
    text = logged(registry.reload)
    assert [agent.key for agent in registry.all()] == ["good"]
    return text


def read_rules(folder: Path, kind: str) -> str:
    return logged(RulesFile(put(folder / "approvals.yaml", kind)).reload)


def read_providers(folder: Path, kind: str) -> str:
    return logged(Providers(put(folder / "providers.json", kind)).reload)


def read_tools(folder: Path, kind: str) -> str:
    put(folder / "tools" / "bad.backend", kind)
    return logged(lambda: read_catalogue(folder / "tools"))


def read_tiers(folder: Path, kind: str) -> str:
    put(folder / "tools.yaml", kind)
    return logged(lambda: read_catalogue(folder / "tools"))


def read_mcp(folder: Path, kind: str) -> str:
    put(folder / "mcp.json", kind)
    assert select_environment("tools", {"PATH": "/bin"}, folder) == {"PATH": "/bin"}
    return told(BadMcpFile, lambda: read_servers(folder / "mcp.json", {}))


def read_api_keys(folder: Path, kind: str) -> str:
    return told(OSError, lambda: ApiKeys(put(folder / "keys.json", kind)))


def read_jwt_keys(folder: Path, kind: str) -> str:
    return told(OSError, lambda: FileKeys(put(folder / "keys.json", kind)))


def read_certificates(folder: Path, kind: str) -> str:
    path = str(put(folder / "tls.crt", kind))
    return told(OSError, lambda: Certificates(path, path))


def read_client_certificates(folder: Path, kind: str) -> str:
    path = str(put(folder / "ca.crt", kind))
    return told(OSError, Tls(ca=path).context)


def read_provider_key(folder: Path, kind: str) -> str:
    key = f"file:{put(folder / 'key', kind)}"
    provider = Provider.model_validate(
        {"key": "p", "protocol": "openai", "baseUrl": "http://p", "apiKeys": [key], "models": [{"name": "m"}]}
    )
    return logged(lambda: told(ProviderAuthentication, lambda: Credentials({}).find_keys(provider)))


def read_skill_text(folder: Path, kind: str) -> str:
    put(folder / "skill" / "SKILL.md", kind)
    return read_skill(folder / "skill").problem


def read_skill_file(folder: Path, kind: str) -> str:
    if kind == "folder":
        pytest.skip("a skill may have folders")
    put(folder / "skill" / "data.txt", kind)
    return told(ValueError, lambda: read_files(folder / "skill", b"", ""))


def read_requirements(folder: Path, kind: str) -> str:
    put(folder / "skill" / "requirements.txt", kind)

    async def find_interpreter() -> None:
        async with asyncio.TaskGroup() as group:
            environments = SkillEnvironments(folder / "envs", group)
            with pytest.raises(SkillUnavailable) as raised:
                await environments.find_interpreter(Skill("skill", folder / "skill", "skill"))
            texts.append(str(raised.value))

    texts: list[str] = []
    asyncio.run(find_interpreter())
    return texts[0]


def read_simulator_script(folder: Path, kind: str) -> str:
    return told(BadScript, lambda: read_script(put(folder / "script.json", kind)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "read",
    [
        read_agents,
        read_rules,
        read_providers,
        read_tools,
        read_tiers,
        read_mcp,
        read_api_keys,
        read_jwt_keys,
        read_certificates,
        read_client_certificates,
        read_provider_key,
        read_skill_text,
        read_skill_file,
        read_requirements,
        read_simulator_script,
    ],
)
def test_every_definition_reader_refuses_irregular_files_in_bounded_memory(
    tmp_path: Path, read: Callable[[Path, str], str], kind: str
) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = read(tmp_path, kind)
    assert "not a regular file" in text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 * 1024
