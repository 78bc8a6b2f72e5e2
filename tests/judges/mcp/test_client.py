"""Our tools service as a client of MCP servers, judged by the client scenarios of the official conformance program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judges.mcp.harness import judge_client
from tests.support.timing import within

QUICK = ("tools_call", "sse-retry")
"""Scenarios of the check."""

SLOW = (
    "initialize",
    "elicitation-sep1034-client-defaults",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
)
"""Scenarios of the nightly; the others are of extensions that we do not offer: client credentials, DPoP, workload
identity, an enterprise's authorization, and skills as resources."""

EXPECTED = {
    "auth/2025-03-26-oauth-endpoint-fallback": "an authorization server without metadata, as 2025-03-26 alone has it",
    "auth/scope-step-up": "owned by 'Other people's programs', kind A: a 403 for one call is taken for the "
    "connection's end, and the call fails in place of asking for the scope",
    "http-custom-headers": "null for a boolean is refused before the call: it does not fit the tool's schema",
}


@pytest.mark.parametrize(
    "scenario",
    [
        *QUICK,
        *(
            pytest.param(
                name,
                marks=[
                    pytest.mark.nightly,
                    *([pytest.mark.xfail(strict=True, reason=EXPECTED[name])] if name in EXPECTED else []),
                ],
            )
            for name in SLOW
        ),
    ],
)
async def test_the_client_holds_the_protocol(scenario: str, tmp_path: Path) -> None:
    async with within(240):
        failures, told = await judge_client(scenario, tmp_path)
    assert failures == {}, told
