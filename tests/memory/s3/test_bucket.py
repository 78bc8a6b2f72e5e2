"""The operations of S3 that blobs need, against a real server that rejects wrong signatures."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from headrace.errors import DiskFull, Overloaded
from services.memory.config import Config
from services.memory.storage.s3.bucket import open_bucket
from services.memory.storage.s3.errors import make_refusal_error, read_refusal
from services.memory.storage.s3.requests import open_requests
from services.memory.storage.s3.settings import S3Settings, parse_place
from services.runtime.ending import CannotServe
from services.runtime.process.config import ConfigError, load_settings
from tests.support.aws import empty_chain
from tests.support.s3_store import QUICK, Place, needs_s3, proxying

pytestmark = needs_s3


async def test_objects_are_put_read_listed_and_deleted(place: Place) -> None:
    async with place.open() as bucket:
        keys = ["a", "b/c", "b/d e+f", "b/ünï=&?#%2F", "g/h/i"]
        for key in keys:
            await bucket.put(key, key.encode() * 100_000)
        assert [entry.key async for entry in bucket.list("")] == sorted(keys, key=str.encode)
        assert [entry.key async for entry in bucket.list("b/")] == sorted(keys[1:4], key=str.encode)
        assert sorted([name async for name in bucket.list_folders("")]) == ["b", "g"]
        for key in keys:
            found = await bucket.get(key)
            assert found is not None
            assert found[0] == key.encode() * 100_000
            assert await bucket.get_head(key, 1) == key.encode()[:1]
            await bucket.delete(key)
            await bucket.delete(key)
            assert await bucket.get(key) is None
        assert [entry async for entry in bucket.list("")] == []


async def test_listing_continues_past_one_response(place: Place) -> None:
    async with place.open() as bucket:
        count = 1005
        for start in range(0, count, 15):
            await asyncio.gather(*(bucket.put(f"{n:04}", b"") for n in range(start, start + 15)))
        assert [int(entry.key) async for entry in bucket.list("")] == list(range(count))


async def test_a_deleted_or_changed_object_is_not_replaced(place: Place) -> None:
    async with place.open() as bucket:
        await bucket.put("a", b"first")
        found = await bucket.get("a")
        assert found is not None
        assert await bucket.replace("a", b"second", found[1])
        assert not await bucket.replace("a", b"third", found[1])
        assert (await bucket.get("a") or ("",))[0] == b"second"
        await bucket.delete("a")
        assert not await bucket.replace("a", b"fourth", found[1])
        assert await bucket.get("a") is None


@pytest.mark.parametrize(
    ("wrong", "url", "code"),
    [
        ({"secret_access_key": "x"}, "s3://chats/a", "SignatureDoesNotMatch"),
        ({"access_key_id": "nobody"}, "s3://chats/a", "InvalidAccessKeyId"),
        ({}, "s3://absent/a", "AccessDenied|NoSuchBucket"),
    ],
)
async def test_a_bucket_that_refuses_access_prevents_the_start(
    place: Place, wrong: dict[str, str], url: str, code: str
) -> None:
    with pytest.raises(CannotServe, match=rf"HEADRACE_MEMORY_BLOBS: {url}: cannot be used: ({code})"):
        async with open_bucket(url, replace(place.settings, **wrong)):
            pass


async def test_a_bucket_that_refuses_later_is_reported_as_overloaded(place: Place) -> None:
    async with proxying(place.settings.endpoint_url) as proxy, place.at(proxy.url).open() as bucket:
        proxy.target += "/absent"
        with pytest.raises(Overloaded, match=r"cannot be used \(\w+") as caught:
            await bucket.put("a", b"")
        assert caught.value.retry_after_s


def test_a_full_object_store_is_reported_as_a_full_disk() -> None:
    full = read_refusal(507, b"<?xml version='1.0'?><Error><Code>XMinioStorageFull</Code></Error>")
    assert isinstance(make_refusal_error(full), DiskFull)
    assert read_refusal(413, b"<html>").code == "status 413"


def make_key(settings: S3Settings, **others: str) -> dict[str, str]:
    ends = {"Expiration": "2999-01-01T00:00:00Z"}
    return {"AccessKeyId": settings.access_key_id, "SecretAccessKey": settings.secret_access_key, **ends, **others}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment in which AWS's chain finds nothing."""
    empty_chain(monkeypatch, tmp_path)
    return monkeypatch


async def test_a_pod_assumes_a_role_with_its_token(place: Place, tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    token, sts_requests = tmp_path / "token", list[dict[str, str]]()
    token.write_text("a token\n")
    key = "".join(f"<{name}>{value}</{name}>" for name, value in make_key(place.settings, SessionToken="").items())
    result = f"<AssumeRoleWithWebIdentityResult><Credentials>{key}</Credentials></AssumeRoleWithWebIdentityResult>"
    answer = f"<R xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>{result}</R>"
    refusal = "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>"

    async def give_key(request: web.Request) -> web.Response:
        sts_requests.append({name: str(value) for name, value in (await request.post()).items()})
        is_known = sts_requests[-1]["WebIdentityToken"].strip() == "a token"
        return web.Response(text=answer if is_known else refusal, status=200 if is_known else 400)

    async with proxying(place.settings.endpoint_url) as proxy:
        proxy.sts = give_key
        env.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
        env.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        env.setenv("AWS_ENDPOINT_URL_STS", proxy.url)
        of_role = S3Settings(endpoint_url=proxy.url)
        async with open_bucket(place.url, of_role) as bucket:
            await bucket.put("a", b"b")
            assert await bucket.get("a") is not None
        assert [sts_request["RoleArn"] for sts_request in sts_requests] == ["arn:aws:iam::1:role/r"]
        token.write_text("another token")
        with pytest.raises(CannotServe, match=r"cannot be used: .*InvalidIdentityToken"):
            async with open_bucket(place.url, of_role):
                pass


async def test_a_pod_gets_a_key_from_its_agent(place: Place, tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    statuses = [503, 200]

    async def give_key(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "of the pod"
        return web.json_response(make_key(place.settings, Token=""), status=statuses.pop())

    app = web.Application()
    app.router.add_get("/v1/credentials", give_key)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        env.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{runner.addresses[0][1]}/v1/credentials")
        (tmp_path / "token").write_text("of the pod")
        env.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        async with open_bucket(place.url, S3Settings(endpoint_url=place.settings.endpoint_url)) as bucket:
            await bucket.put("a", b"b")
            assert await bucket.get("a") is not None
        assert statuses == [503]
    finally:
        await runner.cleanup()


async def test_a_profile_provides_key_and_region(place: Place, tmp_path: Path, env: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    key, secret = place.settings.access_key_id, place.settings.secret_access_key
    file.write_text(f"[chats]\naws_access_key_id={key}\naws_secret_access_key={secret}\nregion=eu-central-1\n")
    env.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    settings = S3Settings(endpoint_url=place.settings.endpoint_url)
    for problem in ("AWS's chain has no credentials", "AWS_PROFILE, AWS_REGION: .*absent"):
        with pytest.raises(CannotServe, match=problem):
            async with open_bucket(place.url, settings, QUICK):
                pass
        env.setenv("AWS_PROFILE", "absent")
    env.setenv("AWS_PROFILE", "chats")
    async with open_bucket(place.url, settings, QUICK) as bucket:
        assert await bucket.get("a") is None


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-central-1", "chats.s3.eu-central-1.amazonaws.com"), ("cn-north-1", "chats.s3.cn-north-1.amazonaws.com.cn")],
)
async def test_a_bucket_is_addressed_in_its_partition(region: str, host: str) -> None:
    settings = S3Settings(region=region, access_key_id="a", secret_access_key="b")
    async with open_requests(parse_place("s3://chats"), settings, QUICK) as requests:
        assert requests.address == f"https://{host}"


async def test_an_unknown_region_is_named() -> None:
    with pytest.raises(CannotServe, match="AWS_REGION: 'moon-1' is no region"):
        async with open_bucket("s3://chats", S3Settings(region="moon-1"), QUICK):
            pass


@pytest.mark.parametrize("mode", ["slow_down", "hang_up", "hang", "cut"])
async def test_a_request_that_fails_once_is_retried(place: Place, mode: str) -> None:
    async with proxying(place.settings.endpoint_url) as proxy, place.at(proxy.url).open() as bucket:
        await bucket.put("a", b"content" * 1000)
        proxy.fail(mode, times=1)
        found = await bucket.get("a")
        assert found is not None
        assert found[0] == b"content" * 1000
        assert proxy.times == 0


async def test_concurrent_requests_are_bounded(place: Place) -> None:
    limits = replace(QUICK, patience_s=60, silence_s=30, requests_max=3)
    async with proxying(place.settings.endpoint_url) as proxy, place.at(proxy.url, limits).open() as bucket:
        await asyncio.gather(*(bucket.put(str(n), b"") for n in range(40)))
        assert (proxy.most_open, proxy.seen["PUT"]) == (3, 40)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("HEADRACE_MEMORY_BLOBS", "https://chats", "expected s3://"),
        ("HEADRACE_MEMORY_BLOBS", "s3://Chats", "3 to 63"),
        ("HEADRACE_MEMORY_BLOBS", "s3://chats/a//b", "expected a prefix"),
        ("HEADRACE_MEMORY_BLOBS", "s3://chats/../b", "expected a prefix"),
        ("AWS_ENDPOINT_URL", "minio:9000", "AWS_ENDPOINT_URL"),
        ("AWS_SECRET_ACCESS_KEY", "", "one is of no use without the other"),
    ],
)
def test_a_wrong_setting_is_named(variable: str, value: str, problem: str) -> None:
    good = {"HEADRACE_MEMORY_BLOBS": "s3://chats/a", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert load_settings(Config, "MEMORY", good).blobs == "s3://chats/a"
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load_settings(Config, "MEMORY", good | {variable: value})
