"""Requests to a company's endpoint as it receives them: headers, keys, parameters, paths and bodies."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from services.llm_gateway.providers.provider_file import Provider, Providers
from services.llm_gateway.providers.route import find_environment_proxy
from tests.support.llm_gateway.answering import HELLO, answering, http_answer
from tests.support.llm_gateway.gateway import Asking, Gateway, provider_entry

KEYS = {"apiKeys": ["env:COMPANY_KEY"]}


async def ask(gateway: Gateway) -> None:
    gateway.env["COMPANY_KEY"] = "k-123456"
    result = await gateway.chat()
    assert (result.error, result.content) == (None, ["hello"])


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({}, ["Authorization: Bearer k-123456"]),
        ({"protocol": "anthropic"}, ["x-api-key: k-123456", "anthropic-version: 2023-06-01"]),
        ({"keyHeader": "api-key"}, ["api-key: k-123456"]),
        ({"keyHeader": "X-Gateway-Auth", "keyScheme": "Token"}, ["X-Gateway-Auth: Token k-123456"]),
        ({"keyScheme": ""}, ["Authorization: k-123456"]),
        ({"organization": "org-1"}, ["OpenAI-Organization: org-1"]),
        ({"headers": {"X-Team": "search", "user-agent": "ours"}}, ["X-Team: search", "user-agent: ours"]),
    ],
)
async def test_a_request_has_the_headers_of_its_entry(asking: Asking, fields: dict[str, Any], lines: list[str]) -> None:
    async with asking(answers=[HELLO], **KEYS, **fields) as gateway:
        gateway.env["COMPANY_KEY"] = "k-123456"
        await gateway.chat()
    head = gateway.heads[0].decode().split("\r\n")
    assert [line for line in lines if line not in head] == []
    assert sum(line.lower().startswith("user-agent:") for line in head) == 1


async def test_classic_azure_has_the_model_in_the_path_and_the_version_in_the_query(asking: Asking) -> None:
    azure: dict[str, Any] = {
        "path": "/openai/deployments/{model}/chat/completions",
        "query": {"api-version": "2024-10-21"},
        "keyHeader": "api-key",
    }
    async with answering(HELLO) as provider:
        base_url = provider.base_url.removesuffix("/v1")
        async with asking(baseUrl=base_url, **azure, **KEYS) as gateway:
            await ask(gateway)
    assert provider.asked[0].startswith(
        b"POST /openai/deployments/sim-1/chat/completions?api-version=2024-10-21 HTTP/1.1\r\n"
    )


async def test_secrets_of_headers_and_parameters_are_looked_up_and_masked(asking: Asking) -> None:
    refusal = http_answer(400, b'{"error":{"message":"bad s-header and s-query"}}')
    fields = {"headers": {"X-Secret": "env:HEADER"}, "query": {"code": "env:QUERY"}}
    async with asking(answers=[refusal], **fields) as gateway:
        missing = (await gateway.chat()).error
        gateway.env.update(HEADER="s-header", QUERY="s-query")
        refused = (await gateway.chat()).error
    assert b"X-Secret: s-header\r\n" in gateway.heads[0]
    assert b"?code=s-query " in gateway.heads[0]
    assert missing is not None
    assert refused is not None
    assert missing.reason == "PROVIDER_AUTHENTICATION"
    assert "lacks X-Secret: env:HEADER is not set" in missing.message
    assert "bad *** and ***" in refused.message


async def test_extra_body_fields_of_the_model_override_the_providers_and_ours(asking: Asking) -> None:
    model = {"name": "sim-1", "extraBody": {"top_k": 2}}
    extra = {"top_k": 1, "safe_prompt": True, "stream_options": None}
    async with asking(extraBody=extra, models=[model]) as gateway:
        await gateway.chat()
        body = gateway.sim.requests[-1].body
    assert (body["top_k"], body["safe_prompt"]) == (2, True)
    assert "stream_options" not in body


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"headers": {"Host": "x"}}, "headers"),
        ({"headers": {"X-Bad": "a\r\nX-More: b"}}, "headers.X-Bad"),
        ({"headers": {"bad name": "a"}}, "headers.bad name"),
        ({"extraBody": {"messages": []}}, "extraBody"),
        ({"proxy": "https://proxy:3128"}, "proxy"),
        ({"path": "chat"}, "path"),
    ],
)
def test_an_invalid_endpoint_setting_is_refused_with_its_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Provider.model_validate(provider_entry("http://127.0.0.1:1/v1", **fields))
    assert named in [".".join(map(str, problem["loc"])).removesuffix(".[key]") for problem in caught.value.errors()]


@pytest.mark.parametrize(
    ("url", "no_proxy", "is_used"),
    [
        ("https://api.example.com/v1", "", True),
        ("https://api.example.com/v1", "*", False),
        ("https://api.example.com/v1", "example.com", False),
        ("https://api.example.com/v1", "ample.com", True),
        ("https://api.example.com/v1", ".example.com,other", False),
        ("https://api.example.com:8443/v1", "api.example.com:443", True),
        ("https://api.example.com:8443/v1", "api.example.com:8443", False),
        ("https://10.1.2.3/v1", "10.0.0.0/8", False),
        ("https://[fd00::1]/v1", "fd00::/8", False),
        ("https://11.1.2.3/v1", "10.0.0.0/8", True),
        ("http://localhost:9/v1", "", False),
        ("http://127.0.0.2:9/v1", "", False),
    ],
)
def test_no_proxy_excludes_hosts_domains_and_networks(url: str, no_proxy: str, is_used: bool) -> None:
    env = {"ALL_PROXY": "proxy.corp:3128", "NO_PROXY": no_proxy}
    proxy = find_environment_proxy(url, env)
    assert (proxy is not None and proxy.authority == "proxy.corp:3128") == is_used


def test_the_company_endpoints_example_is_valid() -> None:
    path = Path(__file__).parents[3] / "examples" / "providers-company.json"
    providers = Providers.model_validate_json(path.read_bytes()).providers
    assert [provider.key for provider in providers] == ["azure", "azure-classic", "vertex", "bedrock", "inside"]
