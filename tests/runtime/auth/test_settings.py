"""Settings with which a service does not start: it would admit everybody, or could not tell who calls."""

import pytest

from services.facade.config import Config as Facade
from services.orchestrator.config import Config
from services.runtime.process.config import ConfigError, load_settings
from tests.support.issuing import INTERNAL

JWT = {
    "HEADRACE_AUTH": "jwt",
    "HEADRACE_AUTH_JWKS_URL": "https://issuer.example/jwks",
    "HEADRACE_AUTH_JWT_ISSUER": "https://issuer.example",
    "HEADRACE_AUTH_JWT_AUDIENCE": "headrace",
    "HEADRACE_INTERNAL_TOKEN": INTERNAL,
}


def read(**env: str) -> Config:
    return load_settings(Config, "ORCHESTRATOR", env)


def problem(**env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(**env)
    return str(caught.value)


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:7001", "localhost:7001", "[::1]:7001", "unix:/run/o.sock", "127.0.0.9:1,unix:/o"]
)
def test_without_credentials_a_service_listens_on_this_machine_only(listen: str) -> None:
    assert read(HEADRACE_ORCHESTRATOR_LISTEN=listen).server.listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:7001", "[::]:7001", "10.0.0.1:7001", "host:7001", "unix:/o,0.0.0.0:7001"])
def test_without_credentials_a_public_address_must_be_allowed_explicitly(listen: str) -> None:
    assert "HEADRACE_AUTH: none" in problem(HEADRACE_ORCHESTRATOR_LISTEN=listen)
    read(HEADRACE_ORCHESTRATOR_LISTEN=listen, HEADRACE_ALLOW_UNAUTHENTICATED="1")
    read(HEADRACE_ORCHESTRATOR_LISTEN=listen, HEADRACE_AUTH="peers", HEADRACE_INTERNAL_TOKEN=INTERNAL)


def test_the_same_holds_for_the_facade() -> None:
    load_settings(Facade, "FACADE", {})
    with pytest.raises(ConfigError, match="HEADRACE_AUTH: none"):
        load_settings(Facade, "FACADE", {"HEADRACE_FACADE_HOST": "0.0.0.0"})
    load_settings(Facade, "FACADE", {"HEADRACE_FACADE_HOST": "0.0.0.0", **JWT})


def test_an_address_for_probes_alone_may_be_public() -> None:
    listen = "127.0.0.1:7001,plain:0.0.0.0:7101"
    assert read(HEADRACE_ORCHESTRATOR_LISTEN=listen).server.listen == listen


def test_with_credentials_services_need_a_token_or_certificates() -> None:
    read(**JWT)
    assert "HEADRACE_INTERNAL_TOKEN" in problem(**(JWT | {"HEADRACE_INTERNAL_TOKEN": ""}))
    assert "32" in problem(**(JWT | {"HEADRACE_INTERNAL_TOKEN": "short"}))
    certificates = {
        "HEADRACE_TLS_CERT": "c",
        "HEADRACE_TLS_KEY": "k",
        "HEADRACE_TLS_CA": "a",
        "HEADRACE_TRANSPORT": "h2",
    }
    read(**(JWT | {"HEADRACE_INTERNAL_TOKEN": ""} | certificates))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"HEADRACE_AUTH": "magic"}, "HEADRACE_AUTH: 'magic'"),
        ({"HEADRACE_AUTH": ""}, "HEADRACE_AUTH"),
        ({"HEADRACE_AUTH": "jwt,none"}, "HEADRACE_AUTH: 'jwt,none'"),
        ({"HEADRACE_AUTH": "api_key"}, "HEADRACE_AUTH_API_KEYS_FILE"),
        ({"HEADRACE_AUTH_KEYS_POLL_S": "0"}, "HEADRACE_AUTH_KEYS_POLL_S"),
        ({"HEADRACE_AUTH_KEYS_POLL_S": "4"}, "HEADRACE_AUTH_KEYS_POLL_S"),
        ({"HEADRACE_AUTH_JWKS_URL": ""}, "exactly one"),
        ({"HEADRACE_AUTH_JWT_KEYS_FILE": "k"}, "exactly one"),
        ({"HEADRACE_AUTH_JWKS_URL": "http://issuer.example/jwks"}, "https"),
        ({"HEADRACE_AUTH_JWT_ISSUER": ""}, "HEADRACE_AUTH_JWT_ISSUER"),
        ({"HEADRACE_AUTH_JWT_AUDIENCE": ""}, "HEADRACE_AUTH_JWT_AUDIENCE"),
        ({"HEADRACE_AUTH_JWT_ALGORITHMS": "RS256,none"}, "'none'"),
        ({"HEADRACE_AUTH_JWT_ALGORITHMS": "HS256"}, "'HS256'"),
        ({"HEADRACE_AUTH_JWT_ALGORITHMS": ""}, "HEADRACE_AUTH_JWT_ALGORITHMS"),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, str], message: str) -> None:
    assert message in problem(**(JWT | changes))
