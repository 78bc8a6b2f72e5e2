"""Every example of the reference works: files are read by the loaders that read users' files, and requests are sent to
a running suite. The second word after the fence names a block's kind.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from docs.generate import contract
from headrace.cli.evaluation.suite import read_suite
from headrace.v1 import agent_pb2
from services.facade.requests.json_body import decode_body
from services.llm_gateway.providers.catalogue import Catalogue as Providers
from services.memory.log import lines
from services.orchestrator.agents.grants import parse_grants
from services.orchestrator.agents.registry import Registry
from services.orchestrator.money.budgets import BudgetsFile
from services.orchestrator.people import approvals
from services.orchestrator.run.approvals.rules import RulesFile
from services.runtime.auth.api_keys import ApiKeys
from services.runtime.auth.identity import Identity
from services.tools.mcp_client.settings import read_servers
from services.tools.skills.skill_folder import read_skill
from tests.support.catalogue import read_catalogue
from tests.support.pages import BLOCK, REFERENCE, read_curl
from tests.support.suite import Running, up_simulated


class Block(NamedTuple):
    """A block of a page, written by hand."""

    page: str
    use: str
    """The second word after the fence, which selects the reader."""

    more: str
    text: str


def list_blocks(page: Path) -> Iterator[Block]:
    by_hand = re.sub(r"<!-- generated: .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
    for found in BLOCK.finditer(by_hand):
        use, _, more = found["use"].partition(" ")
        yield Block(page.name, use, more, found["text"])


BLOCKS = [block for page in sorted(REFERENCE.glob("*.md")) for block in list_blocks(page)]


def read_agent(text: str, folder: Path, _: str) -> None:
    (folder / "example.json").write_text(text)
    registry = Registry(folder)
    registry.reload()
    assert registry.get("example").limits.max_model_calls == (60 if "maxModelCalls" in text else None)


def read_providers(text: str, folder: Path, _: str) -> None:
    (folder / "providers.json").write_text(text)
    catalogue = Providers(folder / "providers.json")
    catalogue.reload()
    assert [provider.key for provider in catalogue.providers] == [item["key"] for item in json.loads(text)["providers"]]


def read_tools(text: str, folder: Path, suffix: str) -> None:
    (tools := folder / "tools").mkdir()
    (tools / f"example{suffix}").write_text(text)
    catalogue = read_catalogue(tools)
    for tool in json.loads(text)["tools"]:
        found = catalogue.find(tool["name"])
        assert found is not None
        assert found.tool.kind == suffix.removeprefix(".")


def read_tiers(text: str, folder: Path, _: str) -> None:
    (folder / "tools").mkdir()
    (folder / "tools.yaml").write_text(text)
    bash, fetch = (read_catalogue(folder / "tools").find(name) for name in ("_bash_", "fetch_web"))
    assert bash is not None
    assert fetch is not None
    assert (bash.tool.tier, bash.tool.tags, fetch.tool.always_available) == ("enabled", ("shell",), True)


def read_approvals(text: str, folder: Path, _: str) -> None:
    (folder / "approvals.yaml").write_text(text)
    rules = RulesFile(folder / "approvals.yaml")
    rules.reload()
    assert rules.current.tools.keys() in ({"_bash_", "write_file"}, {"pay"})
    assert (rules.current.answerers is not None) == ("pay" in rules.current.tools)


def read_budgets(text: str, folder: Path, _: str) -> None:
    (folder / "budgets.yaml").write_text(text)
    budgets = BudgetsFile(folder / "budgets.yaml")
    budgets.reload()
    assert {rule.id for rule in budgets.current.rules} == {"acme", "each-user", "batch-key", "researcher"}


def read_grants(text: str, folder: Path, _: str) -> None:
    granted = parse_grants(text.encode()).select("acme")
    assert granted.allows_tool("crm__find")
    assert granted.find_ceiling("max_model_calls") == 60


def read_evaluation(text: str, folder: Path, _: str) -> None:
    (folder / "suite.yaml").write_text(text)
    suite = read_suite(folder / "suite.yaml")
    assert [variant.name for variant in suite.variants] == ["assistant", "thorough"]


def read_mcp(text: str, folder: Path, _: str) -> None:
    (folder / "mcp.json").write_text(text)
    found = read_servers(folder / "mcp.json", {"FILES_TOKEN": "a", "SEARCH_TOKEN": "b"})
    assert found.problems == {}
    assert found.servers.keys() in ({"files", "search"}, {"tracker"})


def read_skill_file(text: str, folder: Path, _: str) -> None:
    (skill := folder / "charts").mkdir()
    (skill / "SKILL.md").write_text(text)
    assert (read_skill(skill).problem, read_skill(skill).file_types) == ("", ("csv",))


def read_api_keys(text: str, folder: Path, _: str) -> None:
    (folder / "api-keys.json").write_text(text)
    assert ApiKeys(folder / "api-keys.json").find_identity("test") == Identity("acme", "ada")


def read_submit(text: str, _folder: Path, _: str) -> None:
    request: Any = decode_body(text.encode(), agent_pb2.SubmitRequest.DESCRIPTOR)
    assert approvals.parse_answer(request.payload).decision == "edit"


def read_event(text: str, _folder: Path, _: str) -> None:
    event = json.loads(text)
    message = contract.EVENTS[event["type"]].message_type
    assert message is not None
    assert event.keys() - {"seq", "type", "timestamp"} == {field.json_name for field in message.fields}


def read_frame(text: str, folder: Path, more: str) -> None:
    number, _, data = text.strip().splitlines()
    event = data.removeprefix("data: ")
    assert json.loads(event)["seq"] == int(number.removeprefix("id: "))
    read_event(event, folder, more)


def read_line(text: str, _folder: Path, _: str) -> None:
    line = lines.decode_line(text.strip().encode())
    assert isinstance(line, lines.Run)
    assert lines.encode_line(line).decode() == text


READERS: dict[str, Callable[[str, Path, str], None]] = {
    "agent": read_agent,
    "providers": read_providers,
    "tools": read_tools,
    "tools-yaml": read_tiers,
    "approvals": read_approvals,
    "budgets": read_budgets,
    "tenant-agents": read_grants,
    "eval": read_evaluation,
    "mcp": read_mcp,
    "skill": read_skill_file,
    "api-keys": read_api_keys,
    "submit": read_submit,
    "event": read_event,
    "frame": read_frame,
    "line": read_line,
}

ASKED = {"curl", "reply", "failure"}
"""Blocks that are tried against a suite, below."""


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=f"{block.page}-{block.use}") for block in BLOCKS if block.use in READERS]
)
def test_an_example_is_accepted_by_its_loader(block: Block, tmp_path: Path) -> None:
    with capture_logs() as logs:
        READERS[block.use](block.text, tmp_path, block.more)
    assert [line for line in logs if line["log_level"] in ("warning", "error")] == []


def test_every_example_is_tested() -> None:
    assert {block.use for block in BLOCKS} == READERS.keys() | ASKED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    data_dir = tmp_path_factory.mktemp("reference")
    async with up_simulated("--config-dir", "examples", "--data-dir", str(data_dir)) as suite:
        yield suite


@pytest.mark.asyncio(loop_scope="module")
async def test_requests_are_answered_as_documented(suite: Running) -> None:
    answer, upload = [await ask(suite, block.text) for block in BLOCKS if block.use == "curl"]
    reply, failure = (json.loads(block.text) for block in BLOCKS if block.use in ("reply", "failure"))
    for response_body in (answer, upload):
        assert response_body | {"data": {}} == reply | (
            {"chatId": response_body["chatId"]} if response_body is upload else {}
        )
    assert answer["data"].keys() == {"runId", "chatId", "content", "finishReason", "usage"}
    assert upload["data"]["name"] == "README.md"
    async with aiohttp.ClientSession(suite.url) as http, http.get("/api/agent?agentKey=nobody") as response:
        refused = await response.json()
        assert response.status == failure["code"]
    assert refused["msg"].startswith(failure["msg"].partition(";")[0])
    assert refused | {"msg": failure["msg"]} == failure


async def ask(suite: Running, command: str) -> Any:
    """Return the JSON that a curl command line receives."""
    curl = read_curl(command)
    form = aiohttp.FormData()
    for name, path in curl.files.items():
        form.add_field(name, await asyncio.to_thread(Path(path).read_bytes), filename=path)
    url, data = curl.url.replace("http://127.0.0.1:8080", suite.url), curl.body or form
    async with aiohttp.ClientSession() as http, http.post(url, data=data, headers=curl.headers) as response:
        assert response.status == 200, await response.text()
        return await response.json()
