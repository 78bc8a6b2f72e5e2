"""The demo and the script of the examples do what their pages show; trials/guides.py pastes the other blocks."""

import json
import re
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import pytest

from services.simulator.server import simulator
from tests.support.order import texts
from tests.support.programs import run_to_end
from tests.support.suite import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
START = (ROOT / "docs" / "start.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", START, re.MULTILINE | re.DOTALL)


async def test_the_demo_prints_what_the_first_page_shows(demo: Running) -> None:
    (shown,) = [text for _, text in BLOCKS if text.startswith("[reasoning] ")]
    makefile = (ROOT / "Makefile").read_text()
    asked = dict(re.findall(r"^(AGENT|ASK) \?= (.+)$", makefile, re.MULTILINE))
    others = re.findall(r'AGENT=(\w+) ASK="([^"]+)"', START)
    for agent, question in [(asked["AGENT"], asked["ASK"]), *others]:
        command = ("-m", "headrace.cli", "ask", "--url", demo.url, "--agent", agent, " ".join(question.split()))
        code, said = await run(sys.executable, *command)
        assert code == 0
        if agent == asked["AGENT"]:
            assert is_shown(shown.strip(), said), said
    assert {agent for agent, _ in others} == {"trip_planner", "research_team"}


async def test_the_script_of_the_examples_plays_as_it_reads(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```json\n(.*?)^```$", (ROOT / "examples" / "README.md").read_text(), re.M | re.S)
    async with simulator(json.loads(script)) as sim, running(tmp_path / "c", tmp_path / "d", sim) as suite:
        events = await suite.ask("weather?", "react")
        assert [event["ok"] for event in events if event["type"] == "tool.result"] == [True]
        assert "".join(texts(events, "content")) == "It snows."
        busy = await suite.ask("busy")
        assert busy[-1]["error"]["code"] == "RATE_LIMITED"
        cut = await suite.ask("anything else")
        assert texts(cut, "content") == ["Hel"]
        assert cut[-1]["type"] == "run.error"


def is_shown(shown: str, said: str) -> bool:
    """Whether all of `shown` was said; … and a time stand for anything within a line, ids for any other."""
    shown = re.sub(r'"timestamp":\d+', '"timestamp":…', shown)
    return re.search(".*".join(map(re.escape, re.split(r"\w{4}…|…", shown))), said) is not None


async def run(*command: str) -> tuple[int | None, str]:
    """The exit code, and what was printed; errors are let through. Standard input is empty."""
    code, said, _ = await run_to_end(*command, stdin=DEVNULL, stderr=None)
    return code, said.decode()
