"""Requests with cloud credentials, which the vendors' own libraries find."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.aws import empty_chain
from tests.support.llm_gateway.answering import HELLOS, http_answer
from tests.support.llm_gateway.gateway import Asking

pytestmark = pytest.mark.real_time

FINE = [{"steps": [{"content": "done"}]}]
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
MODEL = "arn:aws:bedrock:us-east-1::inference-profile/us.anthropic.claude"
AWS = {"protocol": "bedrock", "credentials": "aws", "models": [{"name": MODEL}]}


@pytest.fixture(autouse=True)
def without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty_chain(monkeypatch, tmp_path)


def sign(request: Any, path: str, body: bytes) -> str:
    """Return a request's signature as AWS's documentation "Create a signed AWS API request" computes it."""
    moment = request.headers["x-amz-date"]
    names = request.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    fields = "".join(f"{name}:{request.headers[name]}\n" for name in names.split(";"))
    payload = hashlib.sha256(body).hexdigest()
    # The path is encoded once more than it is sent.
    canonical = "\n".join(("POST", path.replace("%", "%25"), "", fields, names, payload))
    scope = f"{moment[:8]}/us-east-1/bedrock/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{SECRET}".encode()
    for part in (moment[:8], "us-east-1", "bedrock", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


async def test_a_request_to_aws_is_signed(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token-1")
    async with asking(FINE, **AWS, region="us-east-1") as gateway:
        result = await gateway.chat(model=MODEL)
        [request] = gateway.sim.requests
    assert result.content == ["done"]
    path = f"/v1/model/{MODEL.replace(':', '%3A').replace('/', '%2F')}/converse-stream"
    assert request.headers["authorization"].endswith(f"Signature={sign(request, path, orjson.dumps(request.body))}")
    assert request.headers["x-amz-security-token"] == "session-token-1"


async def test_credentials_that_were_replaced_are_found_again(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs that sign in replace temporary keys in the file each hour: https://github.com/aws/aws-sdk/issues/531
    (2022-10), https://github.com/boto/boto3/issues/4119 (2024-05)."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    expired = http_answer(403, b'{"message":"The security token included in the request is expired"}')
    hello = HELLOS["bedrock"]
    async with asking(answers=[hello, expired, hello], **AWS, region="us-east-1") as gateway:
        for key in ("OLD", "NEW"):
            file.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=x\n")
            assert (await gateway.chat(model=MODEL)).content == ["hello"]
    assert [b"Credential=NEW/" in head for head in gateway.heads] == [False, False, True]


@pytest.mark.parametrize(
    ("env", "fields", "what"),
    [
        ({}, {"region": "us-east-1"}, "AWS's chain has no credentials"),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, {}, "no region is set"),
        ({"AWS_PROFILE": "nobody"}, {"region": "us-east-1"}, "The config profile (nobody) could not be found"),
    ],
)
async def test_missing_aws_credentials_or_region_are_named(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], fields: dict[str, str], what: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    async with asking(FINE, **AWS, **fields) as gateway:
        result = await gateway.chat(model=MODEL)
        assert not gateway.sim.requests
    assert result.reason == "PROVIDER_AUTHENTICATION"
    assert f"provider 'sim' has no credentials of aws: {what}" in result.failure.message


@dataclass
class TokenService:
    status: int = 200
    asked: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        token = {"access_token": f"ya29.token-{self.asked}", "expires_in": 3600, "token_type": "Bearer"}
        refusal = {"error": "invalid_grant", "error_description": "account not found"}
        return web.json_response(token if self.status == 200 else refusal, status=self.status)


@asynccontextmanager
async def serving_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[TokenService]:
    """Serve tokens inside the block to a service account that the environment names."""
    service, app = TokenService(), web.Application()
    app.router.add_post("/token", service.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "headrace@example.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "private_key_id": "1",
        "token_uri": f"http://127.0.0.1:{runner.addresses[0][1]}/token",
    }
    file = folder / "account.json"
    await asyncio.to_thread(file.write_text, json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "project-1")
    try:
        yield service
    finally:
        await runner.cleanup()


async def test_requests_to_vertex_share_one_fetched_token(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with (
        serving_tokens(tmp_path, monkeypatch) as service,
        asking(FINE, protocol="gemini", credentials="google") as gateway,
    ):
        results = await asyncio.gather(*(gateway.chat() for _ in range(5)))
        assert [result.content for result in results] == [["done"]] * 5
        assert {request.headers["authorization"] for request in gateway.sim.requests} == {"Bearer ya29.token-1"}
        assert gateway.sim.requests[0].headers["x-goog-user-project"] == "project-1"
    assert service.asked == 1


async def test_a_refused_or_missing_google_account_is_reported(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fields = {"protocol": "gemini", "credentials": "google"}
    async with serving_tokens(tmp_path, monkeypatch) as service, asking(FINE, **fields) as gateway:
        service.status = 400
        result = await gateway.chat()
        assert result.reason == "PROVIDER_AUTHENTICATION"
        assert "account not found" in result.failure.message
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))
    async with asking(FINE, **fields) as gateway:
        result = await gateway.chat()
        assert result.reason == "PROVIDER_AUTHENTICATION"
        assert "nowhere.json" in result.failure.message
        assert not gateway.sim.requests
