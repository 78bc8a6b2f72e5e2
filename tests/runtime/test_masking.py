"""Masking: credentials are masked, harmless text is not, and it takes little time."""

import json
import time

import orjson
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from services.runtime.process import logs
from services.runtime.telemetry.masking import MASK, find_secrets, mask_log_lines, mask_secrets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("x-api-key=abc; client_secret='abc'", "x-api-key=***; client_secret='***'"),
        ("Incorrect API key provided: sk-abcd1234*****.", "Incorrect API key provided: ***."),
        ("you used 30 tokens: too many", "you used 30 tokens: too many"),
        ("a password is needed", "a password is needed"),
        ("password='open sesame now'.", "password='***'."),
        (r'{"password": "a\"b c", "n": 1}', '{"password": "***", "n": 1}'),
        (r'"{\"password\": \"a b\", \"n\": 1}"', r'"{\"password\": \"***\", \"n\": 1}"'),
        ("{'Authorization': 'Bearer abc', 'n': '1'}", "{'Authorization': '***', 'n': '1'}"),
        ("[(b'X-Api-Key', b'abc'), (b'n', b'1')]", "[(b'X-Api-Key', b'***'), (b'n', b'1')]"),
        ("https://host/v1?api_key=abc&n=1", "https://host/v1?api_key=***&n=1"),
        ("your API key: abc is wrong", "your API key: *** is wrong"),
        ("Basic auth: Authorization: Basic dXNlcjpw", "Basic auth: Authorization: ***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln", "***"),
        ("providers.0.apiKey: unknown, or not supported", "providers.0.apiKey: unknown, or not supported"),
        ('{"max_tokens": 30, "total_tokens": 31}', '{"max_tokens": 30, "total_tokens": 31}'),
    ],
)
def test_masking_hides_values_of_secret_names_and_bare_keys(text: str, expected: str) -> None:
    assert mask_secrets(text) == expected


def test_masking_hides_a_given_secret_everywhere() -> None:
    assert mask_secrets("key my-key-1 (my-key-1)", "my-key-1", "") == "key *** (***)"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), min_size=6), st.booleans())
@example("-----BEGIN KEY-----\nabc\n", False)
@example('pa"ss\\word', False)
@example("schlüssel", True)
def test_masking_hides_a_given_secret_in_json_too(secret: str, is_ascii: bool) -> None:
    text = f"<{secret}>"
    for depth in range(3):
        masked = mask_secrets(text, secret)
        for _ in range(depth):
            masked = json.loads(masked)
        assert masked == f"<{MASK}>"
        text = json.dumps(text, ensure_ascii=is_ascii)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "token" * 200_000, "token " * 150_000, "sk-" * 300_000])
def test_a_mebibyte_is_masked_in_linear_time(text: str) -> None:
    started = time.process_time()
    mask_secrets(text)
    assert time.process_time() - started < 2.0


def test_no_log_line_shows_a_secret_not_even_in_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    env = {"SIM_API_KEY": "my-own-key-0001", "PATH": "/usr/bin", "SHORT_TOKEN": "a"}
    logs.configure_logging("INFO", "llm_gateway")
    mask_log_lines(*find_secrets(env))
    log = structlog.get_logger()
    try:
        raise RuntimeError("my-own-key-0001 was refused, password='open sesame'")
    except RuntimeError:
        log.exception("rpc failed", headers={"x-api-key": "abc-def"}, path="/usr/bin", what="a plain line")
    structlog.configure(**before)
    line = capsys.readouterr().err
    for secret in ("my-own-key-0001", "sesame", "abc-def"):
        assert secret not in line
    assert orjson.loads(line)["what"] == "a plain line", "it still is JSON, and only secrets are masked"
    assert orjson.loads(line)["path"] == "/usr/bin"


@pytest.mark.parametrize("key", ["x", "max", "token"])
def test_a_very_short_key_is_not_masked(key: str) -> None:
    text = "max_tokens is too large; x is not a token"
    assert mask_secrets(text, key) == text


def test_a_key_of_six_characters_is_masked() -> None:
    assert mask_secrets("the key was k-4711, they say", "k-4711") == "the key was ***, they say"
