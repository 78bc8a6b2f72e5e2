"""The page of the tenant's own agents: a form next to the JSON, problems at their fields, publishing, restoring."""

import json
import re

import pytest
from playwright.async_api import expect

from headrace.v1 import agent_pb2, tools_pb2
from tests.support.console.own_agents import OwnAgents
from tests.support.console.page import Opening
from tests.support.console.scripted import Orchestrator, Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

OWN = {
    "key": "brief",
    "mode": "REACT",
    "modelConfig": {"providerKey": "simulator", "model": "sim-1"},
    "react": {"systemPrompt": "You are brief."},
}


async def test_an_agent_is_created_in_the_form_and_published(opening: Opening) -> None:
    script = Orchestrator(own=OwnAgents())
    async with opening(script=script, place="#page=own_agents", bypass_csp=True) as console:
        page = console.page
        console.suite.tools.listed = [tools_pb2.Tool(name="weather"), tools_pb2.Tool(name="shell")]
        await expect(page.get_by_text("No agents yet.")).to_be_visible()
        await page.get_by_role("button", name="New agent").click()
        editor, text = page.get_by_role("region", name="New agent"), page.get_by_label("Definition as JSON")
        await expect(editor.get_by_role("list", name="Problems")).to_contain_text("key: String should match")
        await expect(editor.get_by_role("button", name="Publish")).to_be_disabled()
        for label, value in (("Key", "brief"), ("Provider", "simulator"), ("Model", "sim-1")):
            await editor.get_by_label(label).fill(value)
        tools = editor.get_by_role("group", name="Tools")
        await tools.get_by_role("checkbox", name="weather").check()
        await tools.get_by_role("checkbox", name="shell").check()
        assert json.loads(await text.input_value())["toolConfig"] == {"backends": ["weather", "shell"]}
        await expect(tools).to_have_accessible_description(re.compile("shell.* is not granted"))
        await tools.get_by_role("checkbox", name="shell").uncheck()
        await expect(editor.get_by_role("list", name="Problems")).to_have_text("No problems found.")
        await text.fill((await text.input_value()).replace("helpful assistant", "brief assistant"))
        await expect(editor.get_by_role("textbox", name="System prompt")).to_have_value("You are a brief assistant.")
        await console.check_accessibility()
        await editor.get_by_role("button", name="Publish").click()
        await expect(page.get_by_text("brief is active as version 1.")).to_be_visible()
        await expect(page.get_by_role("region", name="Own agents")).to_contain_text("version 1")
        assert json.loads(script.own.texts["brief"][0])["react"] == {"systemPrompt": "You are a brief assistant."}


@pytest.mark.nightly
async def test_versions_are_compared_tried_and_restored(opening: Opening) -> None:
    changed = OWN | {"react": {"systemPrompt": "You are <b>loud</b>."}}
    script = Orchestrator(own=OwnAgents({"brief": [json.dumps(OWN), json.dumps(changed)]}))
    script.query = Story("How is the weather?").content("It is mild.").complete().steps
    async with opening(script=script, place="#page=own_agents") as console:
        page = console.page
        await page.get_by_role("button", name="Edit: brief").click()
        editor = page.get_by_role("region", name="brief")
        await editor.get_by_text("Versions").click()
        await expect(editor.get_by_text("No differences.")).to_be_visible()
        await editor.get_by_role("combobox", name="Version").select_option("1")
        difference = editor.get_by_role("group", name="Difference")
        await expect(difference.locator("del")).to_contain_text("You are brief.")
        await expect(difference.locator("ins")).to_contain_text("You are <b>loud</b>.")
        await editor.get_by_text("Try it").click()
        await editor.get_by_role("textbox", name="Message").fill("How is the weather?")
        await editor.get_by_role("button", name="Ask").click()
        query = await script.first(agent_pb2.QueryRequest)
        assert (query.agent_key, json.loads(query.trial.definition)) == ("brief", changed | {"key": "brief"})
        await editor.get_by_role("button", name="Use this version").click()
        await expect(editor.get_by_role("textbox", name="System prompt")).to_have_value("You are brief.")
        await editor.get_by_role("button", name="Publish").click()
        await expect(page.get_by_text("brief is active as version 1.")).to_be_visible()
        assert json.loads(script.own.texts["brief"][-1]) == OWN
        script.own.texts["brief"].append(json.dumps(changed))
        await page.get_by_role("button", name="Edit: brief").click()
        await expect(editor.get_by_role("textbox", name="System prompt")).to_have_value("You are <b>loud</b>.")
        script.own.texts["brief"].append(json.dumps(OWN | {"name": "other"}))
        await editor.get_by_role("textbox", name="Name").fill("mine")
        await expect(editor.get_by_role("list", name="Problems")).to_have_text("No problems found.")
        await editor.get_by_role("button", name="Publish").click()
        await expect(editor.get_by_role("alert").first).to_contain_text("is in force, not")
        await editor.get_by_role("button", name="Close").click()
        await page.get_by_role("button", name="Edit: brief").click()
        await editor.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No agents yet.")).to_be_visible()


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
async def test_refused_files_are_shown_only_to_operators(opening: Opening) -> None:
    async with opening(script=Orchestrator(problems=PROBLEMS, scopes=("ask",)), place="#page=agents") as console:
        await expect(console.page.get_by_role("region", name="Agents").locator("tbody tr")).to_have_count(2)
        await expect(console.page.get_by_role("region", name="Refused files")).to_have_count(0)
