"""Who may call which RPC, and for which user."""

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


def claim_service(service: str, token: str = INTERNAL) -> list[tuple[str, str]]:
    return [("x-headrace-caller", service), ("x-headrace-token", token)]


def certificate(*names: str) -> dict[str, Any]:
    return {"transport_security_type": [b"ssl"], PEER_URIS: [name.encode() for name in names if "//" in name]}


async def admit(
    folder: Path, metadata: list[Any], method: str = QUERY, context: dict[str, Any] | None = None, scopes: str = ""
) -> Identity | None:
    settings = key_settings(folder, secret=f"acme/ada staff {scopes}" if scopes else "acme/ada")
    async with open_authenticator(settings, has_certificates=True) as gate:
        return await gate.admit_call(method, metadata, context or {})


def test_the_table_of_callers_has_exactly_the_rpcs_of_the_protos() -> None:
    every = [*RPCS.values(), *a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods]
    rpcs = {f"/{rpc.containing_service.full_name}/{rpc.name}" for rpc in every}
    assert CALLERS.keys() == rpcs
    assert rpcs > WITHOUT_USER
    assert all(callers <= SERVICES | {CLIENT} for callers in CALLERS.values())
    assert not any(CLIENT in CALLERS[method] for method in WITHOUT_USER)


async def test_a_client_is_identified_by_its_credential_alone(tmp_path: Path) -> None:
    assert await admit(tmp_path, KEY) == ADA
    assert await admit(tmp_path, [*KEY, ("x-headrace-tenant", "other"), ("x-headrace-user", "bob")]) == ADA
    with pytest.raises(Unauthenticated):
        await admit(tmp_path, [])
    with pytest.raises(Unauthenticated):
        await admit(tmp_path, FOR_ADA)
    with pytest.raises(Unauthenticated, match="once"):
        await admit(tmp_path, [*KEY, ("x-api-key", "other")])


async def test_only_the_credential_and_services_determine_the_forwarded_credential_name(tmp_path: Path) -> None:
    credential_header = [("x-headrace-credential", "api_key:0123456789ab")]
    name = f"api_key:{hashlib.sha256(b'secret').hexdigest()[:12]}"
    by_client = await admit(tmp_path, [*KEY, *credential_header])
    by_service = await admit(tmp_path, [*claim_service(ORCHESTRATOR), *FOR_ADA, *credential_header], APPEND)
    unproven = await admit(tmp_path, [*claim_service(ORCHESTRATOR), *FOR_ADA], APPEND)
    assert [found and found.credential for found in (by_client, by_service, unproven)] == [
        name,
        credential_header[0][1],
        "",
    ]
    with acting_as(by_client):
        assert forward_identity() == (*FOR_ADA, ("x-headrace-credential", name))
    for bad in ("two words", "x" * 129):
        with pytest.raises(Unauthenticated):
            await admit(tmp_path, [*claim_service(ORCHESTRATOR), *FOR_ADA, ("x-headrace-credential", bad)], APPEND)


async def test_roles_and_scopes_come_from_the_credential_and_are_forwarded(tmp_path: Path) -> None:
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
                again = await gate.admit_call(APPEND, [*claim_service(ORCHESTRATOR), *forward_identity()], {})
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
async def test_invalid_roles_or_scopes_from_a_service_are_refused(header: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await admit(tmp_path, [*claim_service(ORCHESTRATOR), *FOR_ADA, header], APPEND)


def test_without_credentials_every_caller_has_all_scopes_and_no_role() -> None:
    assert (DEFAULT.scopes, DEFAULT.roles) == (ALL_SCOPES, set())


async def test_a_client_may_call_only_the_rpcs_for_clients(tmp_path: Path) -> None:
    for method, callers in CALLERS.items():
        if CLIENT in callers:
            assert await admit(tmp_path, KEY, method, scopes=ALL) == ADA
        else:
            with pytest.raises(PermissionDenied, match="client may not call"):
                await admit(tmp_path, KEY, method)
    with pytest.raises(PermissionDenied):
        await admit(tmp_path, KEY, "/headrace.v1.MemoryService/Forgotten")


async def test_a_service_with_the_internal_token_may_call_only_its_rpcs(tmp_path: Path) -> None:
    for method, callers in CALLERS.items():
        for service in SERVICES:
            metadata = [*claim_service(service), *FOR_ADA, ("x-headrace-scopes", ALL)]
            if service in callers:
                assert await admit(tmp_path, metadata, method) == ADA
            else:
                with pytest.raises(PermissionDenied, match=f"{service} may not call"):
                    await admit(tmp_path, metadata, method)


async def test_a_call_through_a_facade_needs_the_scope_of_the_rpc(tmp_path: Path) -> None:
    answers = [*FOR_ADA, ("x-headrace-scopes", "answer")]
    for metadata in (
        [*claim_service(FACADE), *answers],
        [*claim_service(FACADE), *KEY],
    ):  # the Go gateway passes credentials on
        with pytest.raises(PermissionDenied, match="no scope 'ask'"):
            await admit(tmp_path, metadata, QUERY, scopes="answer")
    assert await admit(tmp_path, [*claim_service(ORCHESTRATOR), *answers], CHAT) == ADA, (
        "a run has been admitted before"
    )


@pytest.mark.parametrize(
    "metadata",
    [
        claim_service(ORCHESTRATOR, INTERNAL[:-1]),
        claim_service(ORCHESTRATOR, ""),
        claim_service("client"),
        claim_service("root"),
        [("x-headrace-caller", ORCHESTRATOR)],
        [("x-headrace-token", INTERNAL)],
        [*claim_service(ORCHESTRATOR), *claim_service(ORCHESTRATOR)],
    ],
)
async def test_a_false_service_token_is_refused_even_with_a_valid_key(metadata: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await admit(tmp_path, [*KEY, *metadata, *FOR_ADA], CHAT)


async def test_a_wrong_token_is_mentioned_only_if_one_was_sent(tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated, match="differs between services"):
        await admit(tmp_path, claim_service(ORCHESTRATOR, INTERNAL[:-1]))
    with pytest.raises(Unauthenticated, match="together with their token") as caught:
        await admit(tmp_path, [*KEY, ("x-headrace-caller", ORCHESTRATOR)])
    assert "HEADRACE_INTERNAL_TOKEN" not in caught.value.message


async def test_a_certificate_identifies_the_calling_service(tmp_path: Path) -> None:
    facade = certificate("facade.headrace.svc", "spiffe://headrace/facade")
    assert await admit(tmp_path, FOR_ADA, CHAT, facade) == ADA
    # Whatever its headers claim.
    with pytest.raises(PermissionDenied, match="facade may not call"):
        await admit(tmp_path, [*claim_service(ORCHESTRATOR), *FOR_ADA], APPEND, facade)
    for name in ("spiffe://headrace/", "spiffe://headrace/orchestrator/x", "spiffe://headrace/client-x"):
        with pytest.raises(PermissionDenied):
            await admit(tmp_path, FOR_ADA, APPEND, certificate(name))
    for name in ("spiffe://other/orchestrator", "orchestrator", "xspiffe://headrace/orchestrator"):
        with pytest.raises(Unauthenticated):
            await admit(tmp_path, FOR_ADA, APPEND, certificate(name))


async def test_a_service_forwards_a_credential_or_names_the_user(tmp_path: Path) -> None:
    assert await admit(tmp_path, [*claim_service(FACADE), *KEY]) == ADA
    for bad in ([], [("x-headrace-tenant", "acme")], [("x-headrace-tenant", "a b"), ("x-headrace-user", "ada")]):
        with pytest.raises(Unauthenticated):
            await admit(tmp_path, [*claim_service(FACADE), *bad])
    assert await admit(tmp_path, claim_service(ORCHESTRATOR), UNFINISHED) is None
    with pytest.raises(Unauthenticated):
        await admit(tmp_path, claim_service(ORCHESTRATOR), APPEND)


async def test_with_auth_peers_no_client_is_admitted() -> None:
    gate = Authenticator(AuthSettings(auth="peers", internal_token=INTERNAL))
    assert await gate.admit_call(APPEND, [*claim_service(ORCHESTRATOR), *FOR_ADA], {}) == ADA
    for metadata in ([], KEY, [("authorization", "Bearer a.b.c")]):
        with pytest.raises(Unauthenticated):
            await gate.admit_call(CHAT, metadata, {})


async def test_without_credentials_all_callers_are_one_user() -> None:
    closed, open_ = Authenticator(AuthSettings(internal_token=INTERNAL)), Authenticator(AuthSettings())
    assert await open_.admit_call(APPEND, [*KEY, *FOR_ADA], {}) == DEFAULT
    assert await closed.admit_call(CHAT, FOR_ADA, {}) == DEFAULT
    with pytest.raises(PermissionDenied):
        await closed.admit_call(APPEND, FOR_ADA, {})
    # A service with a token calls one without: they disagree on who is admitted.
    with pytest.raises(Unauthenticated, match="HEADRACE_INTERNAL_TOKEN"):
        await open_.admit_call(APPEND, [*claim_service(ORCHESTRATOR), *FOR_ADA], {})
