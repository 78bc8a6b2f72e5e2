"""@headrace/client: the package as npm packs it, in a project without other packages, in Node and in Chromium.

Both do the same exercises (typescript/exercises.js), and must get the same states as the fold in Python.
"""

import asyncio
import functools
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page

from headrace.client import Client
from services.simulator.server import simulator
from tests.support.chromium import open_browser
from tests.support.clients.catalogue import ROOT
from tests.support.clients.network import open_network
from tests.support.clients.programs import get_environment, run_program
from tests.support.clients.script import PIECES, call
from tests.support.folds import describe_fold
from tests.support.suite import Running, Suite, running
from tests.support.tiers import check_first
from tests.support.timing import within

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        shutil.which("npm") is None, reason="NOTICE: Node is not installed: @headrace/client is NOT built or tried"
    ),
]

GUIDE = ROOT / "docs" / "guides" / "typescript.md"
PROGRAMS = Path(__file__).with_name("typescript")
EXERCISE_S = 120.0

DELTAS = 20_000
RULES: list[dict[str, Any]] = [
    {"match": {"text": r"Many\."}, "steps": [{"repeat": "ten chars ", "times": DELTAS}]},
    {"match": {"text": r"Where am I\?", "turn": 1}, "steps": [{"repeat": "word ", "times": 300}, call("locate", "{}")]},
    {"match": {"text": r"Where am I\?"}, "steps": [{"repeat": "more ", "times": 300}]},
    {"match": {"text": r"Count\."}, "steps": [{"content": PIECES}]},
    {"match": {"text": r"Where was I\?"}, "steps": [{"content": ["There."]}]},
    {"match": {"text": r"Wait\."}, "steps": [{"content": ["first ", "words "]}, {"stall": True}]},
    {"match": {"text": r"Fail\."}, "steps": [{"status": 401}]},
]
ANSWER = "more " * 300
WORDS = "word " * 300 + ANSWER

TAKEN_BYTES_MAX = 512 * 1024
"""Bytes that a paused reader may have read from its connection. The whole stream has five times as many, unless the
reader was disconnected meanwhile, and reads the rest folded."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package, as npm installs it from its tarball, and the exercises."""
    (tarball,) = get_environment("headrace").glob("*.tgz")
    folder = tmp_path_factory.mktemp("project")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    options = ("--silent", "--offline", "--no-package-lock", "--no-fund", "--no-audit", "--ignore-scripts")
    await run_program(["npm", "install", *options, tarball], folder)
    for file in PROGRAMS.iterdir():
        shutil.copy(file, folder)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(project: Path) -> AsyncGenerator[str]:
    """The origin of a site that serves the project; it differs from the facade's."""
    application = web.Application()
    application.router.add_static("/", project)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def suite(site: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Suite]:
    """A suite of separate processes, so that single services can be killed."""
    folder = tmp_path_factory.mktemp("suite")
    env = {"HEADRACE_FACADE_CORS_ORIGINS": site, "HEADRACE_FACADE_HEARTBEAT_S": "1", "HEADRACE_DRAIN_S": "0.2"}
    async with (
        simulator(RULES) as provider,
        running(folder / "config", folder / "data", provider, form="--split", **env) as suite,
    ):
        yield suite


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncGenerator[Browser]:
    async with open_browser("@headrace/client is NOT tried") as browser:
        yield browser


@asynccontextmanager
async def open_page(browser: Browser, site: str) -> AsyncGenerator[Page]:
    async with within(EXERCISE_S), await browser.new_context() as context:
        page = await context.new_page()
        page.set_default_timeout(EXERCISE_S * 1000)
        await page.goto(f"{site}/page.html")
        yield page


async def do_in_page(page: Page, exercise: str, *parameters: str) -> Any:
    """Do an exercise; it calls the page's `pause`, and `onLost` when the connection is lost."""
    code = f"""async (parameters) => {{
        const {{ exercises }} = await import("/exercises.js");
        return exercises.{exercise}(...parameters, window.pause, window.onLost);
    }}"""
    return await page.evaluate(code, parameters)


async def do_in_node(project: Path, exercise: str, *parameters: str) -> Any:
    output = await run_program(["node", "program.mjs", exercise, *parameters], project)
    return json.loads(output.splitlines()[-1])


async def check_state(suite: Suite, report: dict[str, Any]) -> None:
    """Assert that the run's state equals that of the fold in Python."""
    async with Client(suite.grpc) as headrace, headrace.attach(report["runId"]) as run:
        async for _ in run:
            pass
    assert without_written_arguments(report["state"]) == without_written_arguments(describe_fold(run.state))


def without_written_arguments(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state without the text of calls: the log has their arguments, but not as the model wrote them."""
    blocks = {key: block | ({"text": ""} if block["kind"] == "tool" else {}) for key, block in state["blocks"].items()}
    return state | {"blocks": blocks}


async def kill_facade(suite: Suite, _: str = "") -> None:
    os.kill(suite.services()["facade"], signal.SIGKILL)


async def test_the_typescript_of_programs_and_guides_type_checks(project: Path) -> None:
    compiler = get_environment("headrace") / "package" / "node_modules" / ".bin" / "tsc"
    options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext"]
    blocks = re.findall(r"```ts\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert blocks
    names = [f"guide_{number}.ts" for number in range(len(blocks))]
    for name, block in zip(names, blocks, strict=True):
        (project / name).write_text(block)
    await run_program([compiler, *options, "consumer.ts", *names], project)


async def test_the_npm_package_has_no_dependencies_and_our_version(project: Path) -> None:
    assert [path.name for path in (project / "node_modules").iterdir() if path.is_dir()] == ["@headrace"]
    package = json.loads((project / "node_modules/@headrace/client/package.json").read_text())
    assert f'\nversion = "{package["version"]}"\n' in (ROOT / "pyproject.toml").read_text()
    assert "dependencies" not in package


async def test_older_tools_find_the_package_and_read_its_types(project: Path) -> None:
    """Some read package.json, some know only `main` and `types`, and TypeScript before 5.7 has no generic arrays."""
    package = json.loads((project / "node_modules/@headrace/client/package.json").read_text())
    entry = package["exports"]["."]
    assert (package["main"], package["types"]) == (entry["default"], entry["types"])
    assert package["exports"]["./package.json"] == "./package.json"
    declarations = [path.read_text() for path in (project / "node_modules/@headrace/client/dist").glob("*.d.ts")]
    assert not [text for text in declarations if "Uint8Array<" in text]


@pytest.fixture(params=check_first(["node", "chromium"]))
def do_exercise(
    request: pytest.FixtureRequest, project: Path, site: str, browser: Browser
) -> Callable[[str, str], Awaitable[Any]]:
    """Do an exercise in a program, or in a page."""

    async def do(exercise: str, url: str) -> Any:
        if request.param == "node":
            return await do_in_node(project, exercise, url)
        async with open_page(browser, site) as page:
            return await do_in_page(page, exercise, url)

    return do


async def test_20_000_deltas_fold_to_one_answer(suite: Suite, do_exercise: Any) -> None:
    report = await do_exercise("many", suite.url)
    assert report["state"]["answer"] == "ten chars " * DELTAS
    assert "content.delta" in report["types"]
    await check_state(suite, report)


async def test_a_paused_reader_stops_reading_and_gets_everything_in_the_end(suite: Suite, do_exercise: Any) -> None:
    report = await do_exercise("slow", suite.url)
    assert report["taken"] < min(TAKEN_BYTES_MAX, report["whole"])
    assert report["state"]["answer"] == "ten chars " * DELTAS
    await check_state(suite, report)


async def do_in_node_with_a_kill(suite: Suite, project: Path, exercise: str) -> Any:
    """Do an exercise, and kill the facade when it pauses."""
    async with within(EXERCISE_S):
        program = await asyncio.create_subprocess_exec(
            *("node", "program.mjs", exercise, suite.url),
            cwd=project,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        assert await program.stdout.readline()
        await kill_facade(suite)
        program.stdin.write(b"\n")
        return json.loads((await program.stdout.read()).splitlines()[-1])


async def test_node_continues_reading_after_the_facade_is_killed(suite: Suite, project: Path) -> None:
    await check_broken(suite, await do_in_node_with_a_kill(suite, project, "broken"))


async def test_a_chat_is_followed_over_its_runs_when_the_facade_is_killed(suite: Suite, project: Path) -> None:
    report = await do_in_node_with_a_kill(suite, project, "follow")
    assert report["followed"] == report["asked"]
    places = [(run_id, seq) for run_id, seq, _ in report["events"]]
    assert len(set(places)) == len(places) == len({cursor for *_, cursor in report["events"]})
    for run_id, _ in report["asked"]:
        seqs = [seq for run_of_place, seq in places if run_of_place == run_id]
        assert seqs == sorted(seqs)


async def test_a_page_continues_reading_after_the_facade_is_killed(suite: Suite, site: str, browser: Browser) -> None:
    async with open_page(browser, site) as page:
        await page.expose_function("pause", functools.partial(kill_facade, suite))
        await check_broken(suite, await do_in_page(page, "broken", suite.url))


@pytest.mark.nightly
async def test_a_page_continues_reading_after_being_offline(suite: Suite, site: str, browser: Browser) -> None:
    async with open_network(suite.url) as network, open_page(browser, site) as page:

        async def go_offline(_: str) -> None:
            network.is_away = True
            await page.context.set_offline(True)

        async def come_back() -> None:
            network.is_away = False
            await page.context.set_offline(False)

        await page.expose_function("pause", go_offline)
        await page.expose_function("onLost", come_back)
        await check_broken(suite, await do_in_page(page, "broken", network.url))


async def check_broken(suite: Suite, report: dict[str, Any]) -> None:
    """Assert that the connection was lost once, and that each way of reading the run reached its end."""
    assert report["connections"] == [False, True]
    assert (report["state"]["answer"], report["words"]) == (ANSWER, WORDS)
    await check_state(suite, report)


@pytest.mark.nightly
async def test_a_reloaded_page_gets_the_whole_run(suite: Suite, site: str, browser: Browser) -> None:
    async with open_page(browser, site) as page:
        paused_run_ids: asyncio.Queue[str] = asyncio.Queue(1)
        await page.expose_function("pause", paused_run_ids.put)
        await page.evaluate(
            "(url) => void import('/exercises.js').then((it) => it.exercises.broken(url, pause))", suite.url
        )
        run_id = await paused_run_ids.get()
        await page.reload()
        report = await do_in_page(page, "attach", suite.url, run_id)
    assert report["state"]["answer"] == ANSWER
    await check_state(suite, report)


async def test_text_is_read_once_and_a_finished_stream_stays_empty(suite: Suite, project: Path) -> None:
    report = await do_in_node(project, "text", suite.url)
    assert (report["pieces"], report["again"]) == (PIECES, [])
    assert report["refused"] == "text() needs the run from its start: attach without lastSeq"


async def test_the_client_stops_lists_steers_and_forks_runs_and_uploads_files(suite: Suite, project: Path) -> None:
    assert await do_in_node(project, "runs", suite.url) == {
        "answer": "one two three",
        "file": "The word is swordfish.",
        "fork": "one two three",
        "stopped": "run.cancel",
        "listed": ["cancelled", "completed"],
        "caught": True,
        "steered": "accepted",
        "tokens": True,
        "agents": True,
    }


async def test_the_client_watches_and_answers_gates(examples: Running, project: Path) -> None:
    report = await do_in_node(project, "gates", examples.url)
    assert (report["end"], report["waiting"]) == ("run.complete", 0)
    assert report["answered"][:2] == ["publish_note", "object"]


async def test_errors_of_the_client_have_reason_and_field(suite: Suite, project: Path) -> None:
    assert await do_in_node(project, "errors", suite.url) == {
        "told": [
            [True, False, 404, "NOT_FOUND", "agentKey", False],
            [True, False, 400, "INVALID_REQUEST", "chatId", False],
            [True, False, 404, "NOT_FOUND", None, False],
            [False, True, None, None, None, None],
        ],
        "failed": "PROVIDER_AUTHENTICATION",
    }
