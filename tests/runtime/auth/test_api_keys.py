"""API keys of the file, and what happens if the file has a mistake."""

import asyncio
from pathlib import Path

import pytest

from headrace.errors import Unauthenticated
from services.runtime.auth.api_keys import ApiKeys
from services.runtime.auth.identity import Identity
from services.runtime.auth.setup import open_authenticator
from tests.support.issuing import INTERNAL, jwt_settings, key_settings, keys_file, token

GOOD = "0" * 64


async def test_a_key_identifies_its_user_in_either_header(tmp_path: Path) -> None:
    async with open_authenticator(key_settings(tmp_path, secret="acme/ada"), has_certificates=False) as gate:
        for headers in (
            {"x-api-key": "secret"},
            {"authorization": "Bearer secret"},
            {"authorization": "bearer secret"},
        ):
            assert await gate.identify_client(headers) == Identity("acme", "ada")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "wrong"},
        {"x-api-key": "ß"},
        {"authorization": "secret"},
        {"authorization": "Basic secret"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {token()}"},
    ],
)
async def test_without_a_key_of_the_file_a_client_is_refused(headers: dict[str, str], tmp_path: Path) -> None:
    async with open_authenticator(key_settings(tmp_path, secret="acme/ada"), has_certificates=False) as gate:
        with pytest.raises(Unauthenticated):
            await gate.identify_client(headers)


async def test_keys_and_tokens_can_be_accepted_together(tmp_path: Path) -> None:
    settings = jwt_settings(tmp_path, auth="jwt, api_key", api_keys_file=keys_file(tmp_path, secret="b/bob"))
    async with open_authenticator(settings, has_certificates=False) as gate:
        assert await gate.identify_client({"authorization": "Bearer secret"}) == Identity("b", "bob")
        assert await gate.identify_client({"authorization": f"Bearer {token()}"}) == Identity("acme", "ada")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"keys": [{"sha256": "ab", "tenant": "a", "user": "b"}]}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "", "user": "b"}}]}}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "a b", "user": "b"}}]}}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "a"}}]}}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "a", "user": "b", "role": "admin"}}]}}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "a", "user": "b", "scopes": ["everything"]}}]}}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "a", "user": "b", "roles": ["two words"]}}]}}',
        f'{{"keys": [{{"sha256": "{GOOD}", "tenant": "a", "user": "b"}}, '
        f'{{"sha256": "{GOOD}", "tenant": "c", "user": "b"}}]}}',
    ],
)
def test_a_file_with_a_mistake_prevents_the_start(content: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(OSError, match=r"keys\.json"):
        ApiKeys(file)


async def test_a_changed_file_takes_effect_and_a_bad_one_does_not(tmp_path: Path) -> None:
    settings = key_settings(tmp_path, secret="acme/ada")
    async with asyncio.timeout(100), open_authenticator(settings, has_certificates=False) as gate:
        (tmp_path / "api_keys.json").write_text("{")
        await asyncio.sleep(0.8)
        assert await gate.identify_client({"x-api-key": "secret"}) == Identity("acme", "ada")
        keys_file(tmp_path, other="acme/ada")
        while True:
            try:
                await gate.identify_client({"x-api-key": "secret"})
            except Unauthenticated:
                break
            await asyncio.sleep(0.05)
        assert await gate.identify_client({"x-api-key": "other"}) == Identity("acme", "ada")
    assert INTERNAL not in repr(settings)
