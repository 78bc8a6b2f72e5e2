"""A user signs in, works, signs in again and signs out; and what a thief or a dishonest provider achieves."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from services.facade.config import Config
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.settings import AuthSettings
from services.runtime.process.config import ProcessSettings
from tests.support.issuing import EC
from tests.support.sign_in.office import KEY, OLD_KEY, PUBLIC, SESSION, SIGN_IN, OpenOffice
from tests.support.tenants.suite import ADA, KEYS

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROLES = {"jwt_role_scopes": "platform: operate read_content; security: admin"}


@pytest.mark.parametrize("is_behind", [False, True], ids=["embedded", "gateway"])
async def test_a_user_signs_in_calls_the_api_and_signs_out(is_behind: bool, opening: OpenOffice) -> None:
    async with opening(auth=ROLES, is_behind=is_behind) as office:
        office.provider.claims = {"roles": ["platform", "staff"]}
        browser = office.open_browser()
        assert (await browser.send("/auth/session")).json["data"] == {"signIn": True}
        assert (await browser.send("/api/identity")).status == 401
        await browser.sign_in()
        whose = await browser.whose()
        assert (whose["tenant"], whose["user"]) == ("acme", "ada")
        assert set(whose["scopes"]) == {"ask", "answer", "operate", "read_content"}
        session = (await browser.send("/auth/session")).json["data"]["session"]
        assert (session["user"], session["tenant"], session["canRefresh"]) == ("ada", "acme", True)
        signed_out = await browser.send("/auth/sign-out", "POST", Origin=PUBLIC)
        url = urlsplit(signed_out.json["data"]["url"])
        assert f"{url.scheme}://{url.netloc}{url.path}" == f"{office.provider.url}/end"
        assert parse_qs(url.query)["post_logout_redirect_uri"] == [f"{PUBLIC}/"]
        assert office.provider.revoked == ["refresh-2"]
        assert browser.cookies == {}
        assert (await browser.send("/api/identity")).status == 401


async def test_cookies_are_host_only_and_http_only(opening: OpenOffice) -> None:
    async with opening(public_url="https://agents.example") as office:
        browser = office.open_browser()
        there = await browser.send("/auth/sign-in")
        assert there.headers["Cache-Control"] == "no-store"
        (name, morsel), *others = browser.attributes.items()
        assert (name, others) == (f"__Host-{SIGN_IN}", [])
        assert morsel["secure"]
        assert morsel["httponly"]
        assert (morsel["path"], morsel["domain"]) == ("/", "")
    async with opening() as office:
        browser = office.open_browser()
        await browser.sign_in()
        assert browser.attributes[SIGN_IN]["samesite"] == "Lax"
        assert browser.attributes[SESSION]["samesite"] == "Strict"
        assert browser.attributes[SESSION]["httponly"]
        assert SIGN_IN not in browser.cookies
        assert "ada" not in browser.cookies[SESSION]


async def test_a_code_is_accepted_once_and_only_in_the_browser_that_requested_it(opening: OpenOffice) -> None:
    async with opening() as office:
        browser, thief = office.open_browser(), office.open_browser()
        back = await browser.begin()
        stolen = await thief.send(back)
        assert stolen.status == 401
        assert "This sign-in was not started in this browser" in stolen.text
        await thief.begin()
        assert (await thief.send(back)).status == 401  # with a sign-in of its own, whose state is another
        saved_cookies = dict(browser.cookies)
        assert (await browser.send(back)).status == 303
        browser.cookies = saved_cookies
        again = await browser.send(back)
        assert again.status == 401
        assert "does not take this sign-in" in again.text
        assert SESSION not in browser.cookies
        assert (await browser.send("/auth/callback?state=&code=x")).status == 401
        assert (await thief.send("/api/identity")).status == 401


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": ["headrace-console", "another-client"]},
        {"aud": ["headrace-console", "another-client"], "azp": "another-client"},
        {"iss": "https://another.example"},
        {"exp": 1_700_000_000},
        {"sub": None},
        {"tenant": None},
        {"tenant": "two words"},
    ],
    ids=repr,
)
async def test_an_id_token_for_another_client_starts_no_session(claims: dict[str, Any], opening: OpenOffice) -> None:
    async with opening() as office:
        office.provider.claims = claims
        browser = office.open_browser()
        answer = await browser.send(await browser.begin())
        assert answer.status == 401
        assert "Sign-in did not work" in answer.text
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert SESSION not in browser.cookies


async def test_bad_keys_denials_and_outages_of_the_provider_start_no_session(opening: OpenOffice) -> None:
    async with opening() as office:
        browser = office.open_browser()
        office.provider.key = EC  # published is another
        assert (await browser.send(await browser.begin())).status == 401
        state = parse_qs(urlsplit(await browser.begin()).query)["state"][0]
        denied = await browser.send(f"/auth/callback?state={state}&error=access_denied<b>")
        assert denied.status == 401
        assert "access_denied&lt;b&gt;" in denied.text
        await browser.begin()
        assert (await browser.send(f"/auth/callback?state={state}&code=x&iss=https://another.example")).status == 401
        back = await browser.begin()
        office.provider.is_away = True
        away = await browser.send(back)
        assert away.status == 503
        assert "sign-in provider" in away.text
        assert SESSION not in browser.cookies


@pytest.mark.parametrize(
    "description",
    [{"issuer": "https://another.example"}, {"token_endpoint": "http://login.example/token"}, {"jwks_uri": None}],
    ids=repr,
)
async def test_a_provider_with_an_invalid_discovery_document_is_not_used(
    description: dict[str, Any], opening: OpenOffice
) -> None:
    async with opening() as office:
        office.provider.description = description
        answer = await office.open_browser().send("/auth/sign-in")
        assert answer.status == 503
        assert office.provider.grants == []


async def test_a_refresh_takes_the_current_roles_and_serves_all_tabs(opening: OpenOffice) -> None:
    async with opening(auth=ROLES, session_refresh_s=1.0) as office:
        browser = office.open_browser()
        await browser.sign_in()
        async with asyncio.timeout(60):
            while (answer := await browser.send("/api/identity")).status == 200:
                await asyncio.sleep(0.05)
        assert (answer.status, answer.json["error"]["code"]) == (401, "CREDENTIAL_ENDED")
        office.provider.claims = {"roles": ["security"]}
        saved_cookies = dict(browser.cookies)
        first, second = [
            answer.json["data"]["session"]
            for answer in await asyncio.gather(*(browser.send("/auth/refresh", "POST") for _ in range(2)))
        ]
        assert first["ends"] == second["ends"]
        assert office.provider.grants == ["authorization_code", "refresh_token"]
        assert "admin" in (await browser.whose())["scopes"]
        browser.cookies = saved_cookies  # a tab whose answer was lost
        assert (await browser.send("/auth/refresh", "POST")).status == 200
        office.provider.refresh_tokens.clear()
        refused = await browser.send("/auth/refresh", "POST")
        assert (refused.status, refused.json["error"]["code"]) == (401, "UNAUTHENTICATED")
        assert SESSION not in browser.cookies


async def test_an_unavailable_provider_ends_no_session(opening: OpenOffice) -> None:
    async with opening() as office:
        browser = office.open_browser()
        await browser.sign_in()
        office.provider.is_away = True
        away = await browser.send("/auth/refresh", "POST")
        assert (away.status, away.json["error"]["code"]) == (503, "OVERLOADED")
        assert (await browser.whose())["user"] == "ada"
        office.provider.is_away = False
        assert (await browser.send("/auth/refresh", "POST")).status == 200
        office.provider.is_away = True
        assert (await browser.send("/auth/sign-out", "POST")).status == 200
        assert browser.cookies == {}


async def test_without_a_refresh_token_a_session_ends_with_its_id_token(opening: OpenOffice) -> None:
    async with opening(session_refresh_s=1.0) as office:
        office.provider.gives_refresh_tokens = False
        browser = office.open_browser()
        await browser.sign_in()
        session = (await browser.send("/auth/session")).json["data"]["session"]
        assert not session["canRefresh"]
        assert session["ends"] - session["goodUntil"] > 40_000
        await asyncio.sleep(1.1)
        assert (await browser.whose())["user"] == "ada"
        assert (await browser.send("/auth/refresh", "POST")).status == 401


@pytest.mark.parametrize("is_behind", [False, True], ids=["embedded", "gateway"])
async def test_a_session_is_valid_only_for_the_consoles_own_pages(is_behind: bool, opening: OpenOffice) -> None:
    async with opening(is_behind=is_behind) as office:
        browser = office.open_browser()
        await browser.sign_in()
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site", "Origin": PUBLIC}):
            assert (await browser.send("/api/identity", **headers)).status == 403
            assert (await browser.send("/auth/sign-out", "POST", **headers)).status == 403
            response = await browser.send("/api/query", "POST", {"message": "hi"}, **headers)
            assert response.status == 403
        for path in ("/v1/models", "/mcp"):
            assert (await browser.send(path)).status == 401
        response = await browser.send("/api/query", "POST", {"message": "hi", "agentKey": "plain"}, Origin=PUBLIC)
        assert (response.status, "one " in response.text) == (200, True)
        assert (await browser.send("/api/identity", X_API_Key="wrong")).status == 401  # what is shown counts
        identity = (await browser.send("/api/identity", X_API_Key=KEYS[ADA])).json["data"]
        assert "admin" in identity["scopes"]


async def test_forged_or_misused_cookies_are_refused(opening: OpenOffice) -> None:
    async with opening(session_keys=OLD_KEY) as office:
        browser = office.open_browser()
        await browser.sign_in()
        old = dict(browser.cookies)
    async with opening(session_keys=f"{KEY},{OLD_KEY}") as office:
        browser = office.open_browser()
        browser.cookies = old
        assert (await browser.whose())["user"] == "ada"
    async with opening() as office:
        browser = office.open_browser()
        text = old[SESSION]
        for forged in (text, text[:-4] + "AAAA", text[:40], "x", "é", "e30"):
            browser.cookies = {SESSION: forged}
            assert (await browser.send("/api/identity")).status == 401
        await browser.begin()
        browser.cookies = {SESSION: browser.cookies[SIGN_IN]}  # sealed by the same key, for another purpose
        assert (await browser.send("/api/identity")).status == 401


async def test_a_facade_without_a_provider_offers_no_sign_in(opening: OpenOffice) -> None:
    async with opening(oidc_issuer="") as office:
        browser = office.open_browser()
        assert (await browser.send("/auth/session")).json["data"] == {"signIn": False}
        assert (await browser.send("/auth/sign-in")).status == 404


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"oidc_client_id": ""}, "HEADRACE_FACADE_OIDC_CLIENT_ID"),
        ({"oidc_issuer": "http://login.example"}, "HEADRACE_FACADE_OIDC_ISSUER"),
        ({"oidc_issuer": "http://localhost:1@login.example"}, "HEADRACE_FACADE_OIDC_ISSUER"),
        ({"public_url": "http://agents.example"}, "HEADRACE_FACADE_PUBLIC_URL"),
        ({"public_url": "https://agents.example/console"}, "HEADRACE_FACADE_PUBLIC_URL"),
        ({"public_url": "https://agents.example:443"}, "HEADRACE_FACADE_PUBLIC_URL"),
        ({"session_keys": "short"}, "HEADRACE_FACADE_SESSION_KEYS"),
        ({"session_keys": f"{KEY},"}, "HEADRACE_FACADE_SESSION_KEYS"),
        ({"oidc_scopes": "profile"}, "HEADRACE_FACADE_OIDC_SCOPES"),
        ({"session_refresh_s": 0.0}, "HEADRACE_FACADE_SESSION_REFRESH_S"),
    ],
)
async def test_invalid_sign_in_settings_are_named(changed: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {
        "oidc_issuer": "https://login.example",
        "oidc_client_id": "console",
        "public_url": "https://agents.example",
        "session_keys": KEY,
    }
    with pytest.raises(ValueError, match=problem):
        SignInSettings(**(given | changed))
    with pytest.raises(ValueError, match="HEADRACE_AUTH"):
        Config(sign_in=SignInSettings(**given))


@pytest.mark.parametrize("scopes", ["ops", "ops:", "ops: everything", "two words: ask"])
async def test_invalid_role_scopes_are_named(scopes: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="HEADRACE_AUTH_JWT_ROLE_SCOPES"):
        AuthSettings(jwt_role_scopes=scopes)
    assert AuthSettings(jwt_role_scopes="a: ask;").role_scopes == {"a": frozenset({"ask"})}
    assert ProcessSettings().auth.role_scopes == {}
