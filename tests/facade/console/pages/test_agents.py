"""The page of agents: the definitions in force with their instructions, and the files that were refused."""

import pytest
from playwright.async_api import expect

from headrace.v1 import agent_pb2
from tests.support.console.page import Opening
from tests.support.console.scripted import Orchestrator

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROBLEMS = (
    agent_pb2.AgentProblem(file="helper.json", problem="mode: is <i>required</i>", agent_key="helper"),
    agent_pb2.AgentProblem(file="new.json", problem="no JSON"),
)


async def test_agents_are_shown_with_instructions_and_refused_files(opening: Opening) -> None:
    script = Orchestrator(problems=PROBLEMS)
    async with opening(script=script, place="#page=agents", bypass_csp=True) as console:
        page = console.page
        items = page.get_by_role("region", name="Agents").locator("tbody tr")
        await expect(items).to_have_count(2)
        await expect(items.first).to_contain_text("file refused")
        await expect(items.first).to_contain_text("sim-1")
        refused = page.get_by_role("region", name="Refused files").locator("li")
        await expect(refused).to_have_text(
            [
                "helper.json: mode: is <i>required</i> The last valid version of helper stays active.",
                "new.json: no JSON",
            ]
        )
        await items.first.get_by_role("button", name="Helper").click()
        await expect(page.get_by_role("group", name="Instructions of Helper")).to_have_text("Be <b>brief</b>.\nAlways.")
        await console.check_accessibility()


@pytest.mark.nightly
async def test_refused_files_are_for_operators(opening: Opening) -> None:
    async with opening(script=Orchestrator(problems=PROBLEMS, scopes=("ask",)), place="#page=agents") as console:
        await expect(console.page.get_by_role("region", name="Agents").locator("tbody tr")).to_have_count(2)
        await expect(console.page.get_by_role("region", name="Refused files")).to_have_count(0)
