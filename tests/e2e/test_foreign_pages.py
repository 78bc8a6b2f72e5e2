"""Pages of other origins, and of foreign names that resolve to us, attack a default suite in a browser."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, Request, Response, Route, async_playwright, expect

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAME = "attacker.example"
"""A foreign name that resolves to this machine."""

SECRET = "evil"
"""A text that must never reach a provider."""

ATTEMPTS = """
async (target) => {
  const read = [];
  const body = JSON.stringify({ message: "evil", agentKey: "plain" });
  const attempt = async (name, read_it) => {
    try { if (await read_it()) read.push(name); } catch { /* as it should be */ }
  };
  const send = async (path, init) => {
    const response = await fetch(target + path, init);
    await response.text(); // Chromium ends no request whose body is neither read nor stored in its cache.
    return response.ok;
  };
  const paths = ["/", "/console/main.js", "/healthz", "/readyz?all", "/metrics", "/openapi.json", "/api/agents",
    "/api/chats", "/api/tools", "/v1/models"];
  for (const mode of ["cors", "no-cors"])
    for (const path of paths)
      await attempt(`${mode} ${path}`, () => send(path, { mode }));
  const types = ["application/json", "text/plain", "text/plain; application/json", "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=json", ""];
  const posts = types.flatMap((type) => [["/api/query", type], ["/api/upload", type]]);
  for (const path of ["/api/compact", "/v1/chat/completions", "/v1/responses"]) posts.push([path, "text/plain"]);
  for (const mode of ["cors", "no-cors"])
    for (const [path, type] of posts) {
      const init = { mode, method: "POST", body: new Blob([body], { type }) };
      await attempt(`${mode} POST ${path} ${type}`, () => send(path, init));
    }
  for (const method of ["DELETE", "PUT", "PATCH"])
    await attempt(method, () => send("/api/chat?chatId=x", { method }));
  const form = new FormData();
  form.set("file", new Blob(["evil"]), "evil.txt");
  const upload = { mode: "no-cors", method: "POST", body: form };
  await attempt("upload", () => send("/api/upload", upload));
  navigator.sendBeacon(`${target}/api/query`, new Blob([body]));
  navigator.sendBeacon(`${target}/api/query`, new Blob([body], { type: "text/plain" }));
  const heard = (element, url, property = "src") => new Promise((resolve) => {
    element.onload = element.onopen = element.onmessage = () => resolve(true);
    element.onerror = () => resolve(false);
    if (property) element[property] = url;
    if (element instanceof Node) document.body.append(element);
  });
  await attempt("EventSource", () => heard(new EventSource(`${target}/api/attach?runId=x`), "", null));
  await attempt("image", () => heard(new Image(), `${target}/console/icon.svg`));
  await attempt("script", () => heard(document.createElement("script"), `${target}/console/main.js`));
  const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet" });
  await attempt("style", () => heard(sheet, `${target}/console/styles/people.css`, "href"));
  for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    for (const path of ["/api/query", "/api/upload"]) {
      const frame = Object.assign(document.createElement("iframe"), { name: `f${document.forms.length}` });
      const form = Object.assign(document.createElement("form"),
        { method: "post", action: target + path, target: frame.name, enctype });
      const input = Object.assign(document.createElement("input"),
        { name: '{"message":"evil","agentKey":"plain","requestId":"', value: '"}' });
      form.append(input);
      document.body.append(frame, form);
      await new Promise((resolve) => { frame.onload = resolve; form.submit(); });
    }
  return read;
}
"""
"""What a page tries at `target`; returns the attempts that could read something."""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        program = shutil.which("chromium") or playwright.chromium.executable_path
        if shutil.which(program) is None:
            pytest.skip("NOTICE: Chromium is not installed: foreign pages are NOT tested")
        rules = f"--host-resolver-rules=MAP {NAME} 127.0.0.1"
        browser = await playwright.chromium.launch(
            executable_path=program, args=[rules, "--disable-features=LocalNetworkAccessChecks"]
        )
        yield browser
        await browser.close()


@asynccontextmanager
async def serving_pages() -> AsyncGenerator[int]:
    """A server of foreign pages; pages at `/null` have no origin. Yields its port."""

    async def serve_page(request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": "sandbox allow-scripts allow-forms"} if request.path == "/null" else {}
        return web.Response(text="<!doctype html><body>", content_type="text/html", headers=headers)

    application = web.Application()
    application.router.add_get("/{page}", serve_page)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@dataclass
class Traffic:
    """Open requests of a page to a port, and the answers to them."""

    port: int
    open: set[Request] = field(default_factory=set[Request])
    answers: dict[str, int] = field(default_factory=dict[str, int])

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: self.open.add(request))
        page.on("requestfinished", lambda request: self.open.discard(request))
        page.on("requestfailed", lambda request: self.open.discard(request))
        page.on("response", self._note)

    def _note(self, response: Response) -> None:
        if urlsplit(response.url).port == self.port and "/page" not in response.url:
            self.answers[f"{response.request.method} {response.url}"] = response.status

    async def wait(self) -> None:
        while self.open:
            await asyncio.sleep(0.02)


async def attack(browser: Browser, page_url: str, target: str) -> tuple[list[str], dict[str, int]]:
    """Attack `target` from a page at `page_url`; return what it could read, and the statuses of all answers."""

    async def serve_page(route: Route) -> None:
        await route.fulfill(body="<!doctype html><body>", content_type="text/html")

    page = await browser.new_page()
    port = urlsplit(target).port
    assert port is not None
    if urlsplit(page_url).port == port:
        await page.route(page_url, serve_page)  # As before the name was changed to resolve to us.
    await page.goto(page_url)
    traffic = Traffic(port)
    traffic.watch(page)
    read = await page.evaluate(ATTEMPTS, target)
    await traffic.wait()
    await page.close()
    return read, traffic.answers


async def test_foreign_pages_can_read_nothing_and_start_no_run(suite: Suite, browser: Browser) -> None:
    _, before = await suite.get("/api/chats")
    async with asyncio.timeout(300), serving_pages() as pages:
        port = urlsplit(suite.url).port
        cases = (
            (f"http://localhost:{pages}/page", "localhost"),
            (f"http://127.0.0.1:{pages}/page", "127.0.0.1"),
            (f"http://127.0.0.1:{pages}/null", "127.0.0.1"),
            (f"http://{NAME}:{pages}/page", "127.0.0.1"),
            (f"http://{NAME}:{pages}/page", NAME),
            (f"http://{NAME}:{port}/page", NAME),
        )
        results = await asyncio.gather(*(attack(browser, page, f"http://{host}:{port}") for page, host in cases))
        for case, (read, answers) in zip(cases, results, strict=True):
            assert read == [], case
            assert answers, case
            assert {attempt: status for attempt, status in answers.items() if status != 403} == {}, case
    assert (await suite.get("/api/chats"))[1] == before
    assert SECRET not in str(suite.requests())


async def test_the_console_opens_through_a_link_from_a_foreign_page(suite: Suite, browser: Browser) -> None:
    async with asyncio.timeout(300), serving_pages() as pages:
        page = await browser.new_page()
        await page.goto(f"http://{NAME}:{pages}/page")
        await page.evaluate("(url) => { location.href = url; }", suite.url)
        await page.wait_for_url(f"{suite.url}/**")
        suite.play({"steps": [{"content": "Hello yourself."}]})
        await page.fill("#message", "hello")
        await page.keyboard.press("Enter")
        await expect(page.locator("#runs")).to_contain_text("Hello yourself.", timeout=60_000)
        await page.close()
