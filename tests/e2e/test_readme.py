"""The demo and the example script do what their pages show; trials/guides.py runs the other blocks."""

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


async def test_the_demo_prints_what_the_start_page_shows(demo: Running) -> None:
    (shown,) = [text for _, text in BLOCKS if text.startswith("[reasoning] ")]
    makefile = (ROOT / "Makefile").read_text()
    defaults = dict(re.findall(r"^(AGENT|ASK) \?= (.+)$", makefile, re.MULTILINE))
    others = re.findall(r'AGENT=(\w+) ASK="([^"]+)"', START)
    for agent, question in [(defaults["AGENT"], defaults["ASK"]), *others]:
        command = ("-m", "headrace.cli", "ask", "--url", demo.url, "--agent", agent, " ".join(question.split()))
        code, output = await run(sys.executable, *command)
        assert code == 0
        if agent == defaults["AGENT"]:
            assert is_shown(shown.strip(), output), output
    assert {agent for agent, _ in others} == {"trip_planner", "research_team"}


async def test_the_example_script_plays_as_documented(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```json\n(.*?)^```$", (ROOT / "examples" / "README.md").read_text(), re.M | re.S)
    async with simulator(json.loads(script)) as sim, running(tmp_path / "c", tmp_path / "d", sim) as suite:
        events = await suite.ask("weather?", "react")
        assert [event["ok"] for event in events if event["type"] == "tool.result"] == [True]
        assert "".join(texts(events, "content")) == "It snows."
        busy_run = await suite.ask("busy")
        assert busy_run[-1]["error"]["code"] == "RATE_LIMITED"
        cut_run = await suite.ask("anything else")
        assert texts(cut_run, "content") == ["Hel"]
        assert cut_run[-1]["type"] == "run.error"


def is_shown(shown: str, output: str) -> bool:
    """Return whether the output contains all of `shown`; … and timestamps match anything within a line, ids any id."""
    shown = re.sub(r'"timestamp":\d+', '"timestamp":…', shown)
    return re.search(".*".join(map(re.escape, re.split(r"\w{4}…|…", shown))), output) is not None


async def run(*command: str) -> tuple[int | None, str]:
    """Run with empty standard input; return the exit code and standard output. Standard error is passed through."""
    code, output, _ = await run_to_end(*command, stdin=DEVNULL, stderr=None)
    return code, output.decode()
