"""Who may call what, and for whom."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from headrace.a2a import a2a_pb2
from headrace.errors import PermissionDenied, Unauthenticated
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.callers import CALLERS, CLIENT, FACADE, ORCHESTRATOR, SERVICES, WITHOUT_USER
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT, Identity, acting_as, forward_identity, require_scope
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.setup import open_authenticator
from services.runtime.http2.tls import PEER_URIS
from tests.support.contract import RPCS
from tests.support.issuing import INTERNAL, key_settings

QUERY, APPEND, CHAT = (
    "/headrace.v1.AgentService/Query",
    "/headrace.v1.MemoryService/Append",
    "/headrace.v1.MemoryService/GetChat",
)
UNFINISHED = "/headrace.v1.MemoryService/ListUnfinishedRuns"
ADA = Identity("acme", "ada")
FOR_ADA = [("x-headrace-tenant", "acme"), ("x-headrace-user", "ada")]
KEY = [("x-api-key", "secret")]
ALL = ",".join(sorted(ALL_SCOPES))


def shown(service: str, token: str = INTERNAL) -> list[tuple[str, str]]:
    return [("x-headrace-caller", service), ("x-headrace-token", token)]


def certificate(*names: str) -> dict[str, Any]:
    return {"transport_security_type": [b"ssl"], PEER_URIS: [name.encode() for name in names if "//" in name]}


async def admitted(
    folder: Path, metadata: list[Any], method: str = QUERY, context: dict[str, Any] | None = None, scopes: str = ""
) -> Identity | None:
    settings = key_settings(folder, secret=f"acme/ada staff {scopes}" if scopes else "acme/ada")
    async with open_authenticator(settings, has_certificates=True) as gate:
        return await gate.admit_call(method, metadata, context or {})


def test_the_table_has_every_rpc_and_no_other() -> None:
    every = [*RPCS.values(), *a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods]
    rpcs = {f"/{rpc.containing_service.full_name}/{rpc.name}" for rpc in every}
    assert CALLERS.keys() == rpcs
    assert rpcs > WITHOUT_USER
    assert all(callers <= SERVICES | {CLIENT} for callers in CALLERS.values())
    assert not any(CLIENT in CALLERS[method] for method in WITHOUT_USER)


async def test_a_client_is_whoever_its_credential_says_whatever_else_it_says(tmp_path: Path) -> None:
    assert await admitted(tmp_path, KEY) == ADA
    assert await admitted(tmp_path, [*KEY, ("x-headrace-tenant", "other"), ("x-headrace-user", "bob")]) == ADA
    with pytest.raises(Unauthenticated):
        await admitted(tmp_path, [])
    with pytest.raises(Unauthenticated):
        await admitted(tmp_path, FOR_ADA)
    with pytest.raises(Unauthenticated, match="once"):
        await admitted(tmp_path, [*KEY, ("x-api-key", "other")])


async def test_how_somebody_was_proven_is_said_by_the_credential_and_by_services_alone(tmp_path: Path) -> None:
    said = [("x-headrace-credential", "api_key:0123456789ab")]
    name = f"api_key:{hashlib.sha256(b'secret').hexdigest()[:12]}"
    by_client = await admitted(tmp_path, [*KEY, *said])
    by_service = await admitted(tmp_path, [*shown(ORCHESTRATOR), *FOR_ADA, *said], APPEND)
    unproven = await admitted(tmp_path, [*shown(ORCHESTRATOR), *FOR_ADA], APPEND)
    assert [found and found.credential for found in (by_client, by_service, unproven)] == [name, said[0][1], ""]
    with acting_as(by_client):
        assert forward_identity() == (*FOR_ADA, ("x-headrace-credential", name))
    for bad in ("two words", "x" * 129):
        with pytest.raises(Unauthenticated):
            await admitted(tmp_path, [*shown(ORCHESTRATOR), *FOR_ADA, ("x-headrace-credential", bad)], APPEND)


async def test_roles_and_scopes_are_the_credentials_and_travel_with_the_call(tmp_path: Path) -> None:
    settings = key_settings(tmp_path, secret="acme/ada finance,board ask,operate", plain="acme/bob")
    async with open_authenticator(settings, has_certificates=True) as gate:
        ada = await gate.admit_call(QUERY, [*KEY, ("x-headrace-roles", "root")], {})
        bob = await gate.admit_call(QUERY, [("x-api-key", "plain"), ("x-headrace-scopes", "admin")], {})
        assert ada is not None
        assert bob is not None
        assert (ada.roles, ada.scopes) == ({"finance", "board"}, {"ask", "operate"})
        assert (bob.roles, bob.scopes) == (set(), {"ask", "answer"})
        for found in (ada, bob):
            with acting_as(found):
                again = await gate.admit_call(APPEND, [*shown(ORCHESTRATOR), *forward_identity()], {})
                assert again is not None
                assert (again.roles, again.scopes) == (found.roles, found.scopes)
        with acting_as(ada):
            assert require_scope("operate") == ada
            with pytest.raises(PermissionDenied, match="'admin'"):
                require_scope("admin")


@pytest.mark.parametrize(
    "header",
    [
        ("x-headrace-roles", "two words"),
        ("x-headrace-roles", "a,,b"),
        ("x-headrace-roles", ",".join(f"r{n}" for n in range(65))),
        ("x-headrace-scopes", "ask,everything"),
        ("x-headrace-scopes", "ask,"),
    ],
)
async def test_a_services_word_for_roles_that_cannot_be_is_refused(header: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await admitted(tmp_path, [*shown(ORCHESTRATOR), *FOR_ADA, header], APPEND)


def test_without_credentials_everybody_has_all_scopes_and_no_role() -> None:
    assert (DEFAULT.scopes, DEFAULT.roles) == (ALL_SCOPES, set())


async def test_a_client_may_call_what_is_for_clients(tmp_path: Path) -> None:
    for method, callers in CALLERS.items():
        if CLIENT in callers:
            assert await admitted(tmp_path, KEY, method, scopes=ALL) == ADA
        else:
            with pytest.raises(PermissionDenied, match="client may not call"):
                await admitted(tmp_path, KEY, method)
    with pytest.raises(PermissionDenied):
        await admitted(tmp_path, KEY, "/headrace.v1.MemoryService/Forgotten")


async def test_a_service_with_the_suites_token_is_believed(tmp_path: Path) -> None:
    for method, callers in CALLERS.items():
        for service in SERVICES:
            metadata = [*shown(service), *FOR_ADA, ("x-headrace-scopes", ALL)]
            if service in callers:
                assert await admitted(tmp_path, metadata, method) == ADA
            else:
                with pytest.raises(PermissionDenied, match=f"{service} may not call"):
                    await admitted(tmp_path, metadata, method)


async def test_who_comes_by_a_facade_needs_the_scope_of_the_rpc(tmp_path: Path) -> None:
    answers = [*FOR_ADA, ("x-headrace-scopes", "answer")]
    for metadata in ([*shown(FACADE), *answers], [*shown(FACADE), *KEY]):  # the Go gateway passes credentials on
        with pytest.raises(PermissionDenied, match="no scope 'ask'"):
            await admitted(tmp_path, metadata, QUERY, scopes="answer")
    assert await admitted(tmp_path, [*shown(ORCHESTRATOR), *answers], CHAT) == ADA, "a run has been admitted before"


@pytest.mark.parametrize(
    "metadata",
    [
        shown(ORCHESTRATOR, INTERNAL[:-1]),
        shown(ORCHESTRATOR, ""),
        shown("client"),
        shown("root"),
        [("x-headrace-caller", ORCHESTRATOR)],
        [("x-headrace-token", INTERNAL)],
        [*shown(ORCHESTRATOR), *shown(ORCHESTRATOR)],
    ],
)
async def test_a_false_badge_is_worse_than_none(metadata: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await admitted(tmp_path, [*KEY, *metadata, *FOR_ADA], CHAT)


async def test_a_token_is_spoken_of_only_where_one_came(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated, match="differs between services"):
        await admitted(tmp_path, shown(ORCHESTRATOR, INTERNAL[:-1]))
    with pytest.raises(Unauthenticated, match="together with their token") as caught:
        await admitted(tmp_path, [*KEY, ("x-headrace-caller", ORCHESTRATOR)])
    assert "HEADRACE_INTERNAL_TOKEN" not in caught.value.message


async def test_a_certificate_says_who_calls(tmp_path: Path) -> None:
    facade = certificate("facade.headrace.svc", "spiffe://headrace/facade")
    assert await admitted(tmp_path, FOR_ADA, CHAT, facade) == ADA
    # Whatever it says of itself.
    with pytest.raises(PermissionDenied, match="facade may not call"):
        await admitted(tmp_path, [*shown(ORCHESTRATOR), *FOR_ADA], APPEND, facade)
    for name in ("spiffe://headrace/", "spiffe://headrace/orchestrator/x", "spiffe://headrace/client-x"):
        with pytest.raises(PermissionDenied):
            await admitted(tmp_path, FOR_ADA, APPEND, certificate(name))
    for name in ("spiffe://other/orchestrator", "orchestrator", "xspiffe://headrace/orchestrator"):
        with pytest.raises(Unauthenticated):
            await admitted(tmp_path, FOR_ADA, APPEND, certificate(name))


async def test_a_service_passes_a_credential_on_or_says_for_whom(tmp_path: Path) -> None:
    assert await admitted(tmp_path, [*shown(FACADE), *KEY]) == ADA
    for bad in ([], [("x-headrace-tenant", "acme")], [("x-headrace-tenant", "a b"), ("x-headrace-user", "ada")]):
        with pytest.raises(Unauthenticated):
            await admitted(tmp_path, [*shown(FACADE), *bad])
    assert await admitted(tmp_path, shown(ORCHESTRATOR), UNFINISHED) is None
    with pytest.raises(Unauthenticated):
        await admitted(tmp_path, shown(ORCHESTRATOR), APPEND)


async def test_peers_let_no_client_in() -> None:
    gate = Authenticator(AuthSettings(auth="peers", internal_token=INTERNAL))
    assert await gate.admit_call(APPEND, [*shown(ORCHESTRATOR), *FOR_ADA], {}) == ADA
    for metadata in ([], KEY, [("authorization", "Bearer a.b.c")]):
        with pytest.raises(Unauthenticated):
            await gate.admit_call(CHAT, metadata, {})


async def test_without_credentials_everybody_is_one_user() -> None:
    closed, open_ = Authenticator(AuthSettings(internal_token=INTERNAL)), Authenticator(AuthSettings())
    assert await open_.admit_call(APPEND, [*KEY, *FOR_ADA], {}) == DEFAULT
    assert await closed.admit_call(CHAT, FOR_ADA, {}) == DEFAULT
    with pytest.raises(PermissionDenied):
        await closed.admit_call(APPEND, FOR_ADA, {})
    # A service that has a token talks to one that was given none: they do not agree on who is let in.
    with pytest.raises(Unauthenticated, match="HEADRACE_INTERNAL_TOKEN"):
        await open_.admit_call(APPEND, [*shown(ORCHESTRATOR), *FOR_ADA], {})
