"""A run that leaks on purpose: the provider sends keys and passwords back in every form, at log level DEBUG.

The test searches everything that leaves the gateway's process except the answer's own text, which must stay unchanged.
"""

import asyncio
from pathlib import Path
from typing import Any

import orjson

from headrace.errors import HeadraceError, to_status
from headrace.streams import reading
from headrace.v1 import llm_pb2
from services.simulator.server import simulator
from tests.support.llm_gateway.gateway import provider_entry, text_message
from tests.support.llm_gateway.process import gateway_process

ENV_KEY = "my-own-key-0001"
FILE_KEY = "zq81-of-a-file-7777"
FOREIGN = {
    "bare": "sk-ant-0123456789abcdef",
    "bearer": "abcdef0123456789.xyz",
    "password": "open sesame now",
    "token": "tok-5555-5555",
    "secret": "s3cr3t-6666",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln",
}
"""Credentials of others, known by their form or their name alone."""

KEYS = {"sim": ENV_KEY, "other": FILE_KEY}
SECRETS = (*KEYS.values(), *FOREIGN.values())


def leaks(key: str) -> dict[str, str]:
    """Return answers that leak `key`, by form."""
    named = {"api_key": key, "password": FOREIGN["password"], "in": {"client_secret": FOREIGN["secret"]}}
    body = orjson.dumps(named).decode()
    raw = [(b"Authorization", f"Basic {FOREIGN['secret']}".encode()), (b"X-Api-Key", FOREIGN["bare"].encode())]
    return {
        "text": f"key {key}; Authorization: Bearer {FOREIGN['bearer']}; password='{FOREIGN['password']}' "
        f"?token={FOREIGN['token']}&x=1 {FOREIGN['bare']} {FOREIGN['jwt']} secret: {FOREIGN['secret']}",
        "headers": str({"Authorization": f"Bearer {key}", "x-api-key": key, "x-auth-token": FOREIGN["token"]}),
        "raw-headers": str(raw),
        "json": body,
        "nested": orjson.dumps({"raw": body, "token": FOREIGN["token"]}).decode(),
    }


def script() -> list[dict[str, Any]]:
    """Return a script in which a model's name says which provider leaks where, and in which form."""
    rules: list[dict[str, Any]] = []
    for provider, form, leak in ((name, *item) for name, key in KEYS.items() for item in leaks(key).items()):
        error = {"error": {"message": leak, "type": leak, "code": leak}}
        for place, steps in {
            "refusal": [{"status": 400, "body": error}],
            "page": [{"status": 502, "body": f"<html>{leak}</html>"}],
            "key": [{"status": 401, "body": leak}],
            "delta": [{"reasoning": leak}, {"content": leak}, {"toolCall": leak, "id": leak, "arguments": [leak]}],
            "stream": [{"content": "a"}, {"frame": error}],
            "frame": [{"raw": f"data: {leak}\n\n"}],
        }.items():
            rules.append({"match": {"model": f"sim-1-{provider}-{place}-{form}"}, "steps": steps})
    return rules


async def collect_texts(llm: Any, provider: str, model: str) -> list[str]:
    """Return everything a call returned as text, except the answer's own text."""
    request = llm_pb2.ChatRequest(provider_key=provider, model=model, messages=[text_message("user", "hi")])
    texts: list[str] = []
    try:
        async with reading(llm.StreamChat(request, timeout=100)) as replies:
            async for delta in replies:
                if delta.WhichOneof("delta") not in ("reasoning", "content", "tool_call"):
                    texts.append(str(delta))
    except HeadraceError as error:
        texts += [repr(error), error.message, str(error.metadata), str(to_status(error))]
    return texts


async def test_no_key_token_or_password_is_exposed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(FILE_KEY + "\n")
    sim_script = script()
    async with asyncio.timeout(900), simulator(sim_script) as sim:
        models = [{"name": rule["match"]["model"]} for rule in sim_script]  # an entry each: breakers stay closed
        entries = [
            provider_entry(sim.base_url, apiKeys=["env:SIM_API_KEY"], models=models),
            provider_entry(sim.base_url, apiKeys=[f"file:{tmp_path}/key"], key="other", models=models),
        ]
        output: list[str] = []
        async with gateway_process(tmp_path, *entries, HEADRACE_LOG_LEVEL="DEBUG", SIM_API_KEY=ENV_KEY) as gateway:
            for model in (model["name"] for model in models):
                output += await collect_texts(gateway.llm, model.split("-")[2], model)
        assert len(sim.requests) == len(sim_script)
        asked_with = {request.headers["authorization"] for request in sim.requests}
        lines = gateway.stderr.read_text().splitlines()
    assert asked_with == {f"Bearer {ENV_KEY}", f"Bearer {FILE_KEY}"}, "the run used the keys"
    assert sum(orjson.loads(line)["event"] == "delta" for line in lines) > 4 * len(KEYS), "and logged every delta"
    exposed = {secret: [text for text in (*output, *lines) if secret in text][:2] for secret in SECRETS}
    assert not any(exposed.values()), {secret: texts for secret, texts in exposed.items() if texts}
