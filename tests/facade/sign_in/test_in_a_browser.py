"""Chromium, the console and a third-party provider: sign in, work, sign in again, sign out."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Request, expect

from tests.support.clients.catalogue import ENVIRONMENTS, ROOT
from tests.support.clients.network import find_free_port
from tests.support.console.page import TEST_S, WAIT_MS, collect_errors
from tests.support.programs import starting
from tests.support.sign_in.office import OpenOffice

pytestmark = pytest.mark.asyncio(loop_scope="session")

SITE = ROOT / "tests/clients/python/oidc_site.py"


@asynccontextmanager
async def serving_site(folder: Path, public_url: str) -> AsyncGenerator[str]:
    """Yield the issuer's address of a django-oauth-toolkit."""
    python = ENVIRONMENTS / "oidc" / "bin" / "python"
    if not python.exists():
        pytest.skip("NOTICE: `make build/clients/oidc/done` was not run: sign-in is NOT tried with another's provider")
    async with starting(python, SITE, folder, public_url, stdout=PIPE) as process:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()


async def log_in(page: Page) -> None:
    """Log in at the provider."""
    await page.fill("[name=username]", "ada")
    await page.fill("[name=password]", "lovelace")
    await page.get_by_role("button", name="Log in").click()


@pytest.mark.nightly
async def test_a_user_signs_in_and_out_at_a_third_party_provider(
    opening: OpenOffice, browser: Browser, tmp_path: Path
) -> None:
    port = find_free_port()
    public_url = f"http://localhost:{port}"
    (tmp_path / "roles").write_text("staff")
    async with (
        asyncio.timeout(TEST_S),
        serving_site(tmp_path, public_url) as issuer,
        opening(
            public_url=public_url,
            port=port,
            auth={"jwt_role_scopes": "security: admin"},
            oidc_issuer=issuer,
            oidc_client_secret="the-client-s-secret",
            session_refresh_s=1.0,
        ),
        await browser.new_context() as context,
    ):
        context.set_default_timeout(WAIT_MS)
        page = await context.new_page()
        problems = collect_errors(page)
        sent: list[Request] = []
        page.on("request", lambda request: sent.append(request))
        await page.goto(f"{public_url}/#page=limits")
        await page.get_by_role("button", name="Sign in with SSO").click()
        await log_in(page)
        sign_out = page.get_by_role("button", name="Sign out")
        await expect(sign_out).to_have_attribute("title", "ada, acme")
        assert page.url == f"{public_url}/#page=limits"
        await expect(page.locator("#sign-in")).to_be_hidden()
        await page.get_by_text("Operate").click()
        await expect(page.get_by_role("link", name="Spend")).to_be_visible()
        await expect(page.get_by_role("link", name="Keys")).to_be_hidden()

        (tmp_path / "roles").write_text("security")
        await asyncio.sleep(1.1)
        await page.goto(f"{public_url}/#page=")
        await page.reload()
        await expect(page.get_by_role("link", name="Keys")).to_be_visible()
        assert {request.method for request in sent if request.url.endswith("/auth/refresh")} == {"POST"}
        await page.fill("#message", "hello")
        await page.keyboard.press("Enter")
        await expect(page.locator(".answer")).to_contain_text("one two")
        assert "headrace" not in await page.evaluate("document.cookie")

        (callback,) = {request.url for request in sent if "/auth/callback?" in request.url}
        other = await context.new_page()
        replayed = await other.goto(callback)
        assert replayed is not None
        assert replayed.status == 401
        await expect(other.get_by_role("heading")).to_have_text("Sign-in did not work")
        await other.close()

        await sign_out.click()
        await page.get_by_role("button", name="Logout").click()  # the provider's own question
        await expect(page.locator("#sign-in")).to_be_visible()
        assert page.url == f"{public_url}/"
        await page.get_by_role("button", name="Sign in with SSO").click()
        await expect(page.locator("[name=username]")).to_be_visible()  # the provider's session has ended too
        assert problems == []
