"""Settings are read from an environment that the test makes up."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from services.runtime.auth.settings import AuthSettings
from services.runtime.process.config import (
    ConfigError,
    ServerSettings,
    describe_settings,
    list_variables,
    load_settings,
    setting,
)
from services.runtime.process.transport import DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    server: ServerSettings = ServerSettings(listen="127.0.0.1:7003")
    data_dir: Path = setting(Path(".data"), name="HEADRACE_DATA_DIR")
    cache_dir: Path | None = None
    chat_k: int = setting(20, aliases=("MEMORY_CHAT_K",))
    ratio: float = 0.5
    is_open: bool = False
    api_key: str = setting("", secret=True)

    def __post_init__(self) -> None:
        if self.ratio > 1:
            raise ValueError("HEADRACE_MEMORY_RATIO: expected 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needy:
    address: str
    token: str = setting(secret=True)


def read(**env: str) -> Config:
    return load_settings(Config, "MEMORY", env)


def problems(**env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(**env)
    return str(caught.value).splitlines()


def test_without_variables_all_settings_have_their_defaults() -> None:
    assert read() == Config()
    assert read(PATH="/bin", HOME="/root") == Config()


def test_a_variable_sets_the_field_of_its_name() -> None:
    config = read(
        HEADRACE_MEMORY_LISTEN="127.0.0.1:0,unix:/run/m.sock",
        HEADRACE_MEMORY_STREAMS_MAX="7",
        HEADRACE_LOG_LEVEL="DEBUG",
        HEADRACE_DRAIN_S="1.5",
        HEADRACE_DATA_DIR="/srv/data",
        HEADRACE_MEMORY_CACHE_DIR="/srv/cache",
        HEADRACE_MEMORY_CHAT_K="0",
        HEADRACE_MEMORY_RATIO="1",
        HEADRACE_MEMORY_API_KEY="k",
    )
    listen = "127.0.0.1:0,unix:/run/m.sock"
    assert config.server == ServerSettings(listen=listen, log_level="DEBUG", drain_s=1.5, streams_max=7)
    assert (config.data_dir, config.cache_dir) == (Path("/srv/data"), Path("/srv/cache"))
    assert (config.chat_k, config.ratio, config.api_key) == (0, 1.0, "k")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("ON", True), ("no", False), ("0", False)])
def test_a_switch_accepts_several_words(text: str, value: bool) -> None:
    assert read(HEADRACE_MEMORY_IS_OPEN=text).is_open is value


def test_space_around_a_value_is_no_part_of_it() -> None:
    config = read(HEADRACE_MEMORY_API_KEY="k 1\n", HEADRACE_MEMORY_LISTEN="127.0.0.1:0\r\n")
    assert (config.api_key, config.server.listen) == ("k 1", "127.0.0.1:0")


def test_an_empty_text_is_none_for_an_optional_setting() -> None:
    assert read(HEADRACE_MEMORY_CACHE_DIR="").cache_dir is None


def test_an_alias_is_accepted_and_the_main_name_takes_precedence() -> None:
    assert read(MEMORY_CHAT_K="3").chat_k == 3
    assert read(MEMORY_CHAT_K="3", HEADRACE_MEMORY_CHAT_K="4").chat_k == 4


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("HEADRACE_MEMORY_CHAT_K", "x", "a whole number"),
        ("HEADRACE_MEMORY_CHAT_K", "1.5", "a whole number"),
        ("HEADRACE_MEMORY_CHAT_K", "", "a whole number"),
        ("HEADRACE_MEMORY_CHAT_K", "-1", "a number that is not negative"),
        ("MEMORY_CHAT_K", "-1", "a number that is not negative"),
        ("HEADRACE_MEMORY_STREAMS_MAX", "0", "1 or more"),
        ("HEADRACE_DRAIN_S", "soon", "a number"),
        ("HEADRACE_DRAIN_S", "-0.1", "a number that is not negative"),
        ("HEADRACE_DRAIN_S", "nan", "a number that is not negative"),
        ("HEADRACE_DRAIN_S", "inf", "a number that is not negative"),
        ("HEADRACE_MEMORY_IS_OPEN", "maybe", "true or false"),
    ],
)
def test_a_malformed_value_is_named_with_the_expected_form(name: str, text: str, expected: str) -> None:
    assert problems(**{name: text}) == [f"{name}: {text!r}: expected {expected}"]


@pytest.mark.parametrize("listen", ["", "7003", ":7003", "localhost", "127.0.0.1:99999", "127.0.0.1:x", "unix:"])
def test_an_ambiguous_listen_address_is_rejected(listen: str) -> None:
    assert problems(HEADRACE_MEMORY_LISTEN=listen) == [f"listen address {listen!r}: expected host:port or unix:/path"]


@pytest.mark.parametrize("where", ["127.0.0.1:7103", "unix:/run/probes"])
def test_an_address_for_probes_cannot_be_the_first(where: str) -> None:
    assert read(HEADRACE_MEMORY_LISTEN=f"127.0.0.1:1, plain:{where}").server.addresses[1] == f"plain:{where}"
    assert problems(HEADRACE_MEMORY_LISTEN=f"plain:{where},127.0.0.1:1") == [
        f"listen address 'plain:{where}': the first one is for all calls, not for probes alone"
    ]


def test_a_name_inside_the_process_needs_the_local_transport() -> None:
    assert read(HEADRACE_TRANSPORT="local", HEADRACE_MEMORY_LISTEN="local:memory").server.addresses == ["local:memory"]
    problem = "listen address 'local:memory': expected host:port or unix:/path"
    assert problems(HEADRACE_TRANSPORT="h2", HEADRACE_MEMORY_LISTEN="local:memory") == [problem]


TLS = {"HEADRACE_TLS_CERT": "/c", "HEADRACE_TLS_KEY": "/k", "HEADRACE_TLS_CA": "/ca"}


def select_tls(*names: str) -> dict[str, str]:
    return {name: TLS[name] for name in TLS if name.rpartition("_")[2] in names}


@pytest.mark.parametrize("names", [["CERT"], ["KEY"], ["CA"], ["CERT", "CA"], ["KEY", "CA"]], ids="-".join)
def test_incomplete_certificates_are_rejected(names: list[str]) -> None:
    assert problems(HEADRACE_TRANSPORT="h2", **select_tls(*names)) == [
        "HEADRACE_TLS_CERT, HEADRACE_TLS_KEY, HEADRACE_TLS_CA: expected none, the first two, or all three"
    ]


def test_certificates_need_our_transport() -> None:
    assert problems(HEADRACE_TRANSPORT="grpcio", **TLS) == ["HEADRACE_TLS_CERT needs HEADRACE_TRANSPORT=h2"]
    assert read(HEADRACE_TRANSPORT="h2", **select_tls("CERT", "KEY")).server.tls_cert == "/c"


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        HEADRACE_MEMORY_CHAT_K="x", HEADRACE_MEMORY_STREAMS_MAX="many", HEADRACE_MEMORY_CHAT_KK="1", HEADRACE_TYPO="1"
    )
    assert [line.partition(":")[0] for line in found] == [
        "HEADRACE_MEMORY_STREAMS_MAX",
        "HEADRACE_MEMORY_CHAT_K",
        "HEADRACE_MEMORY_CHAT_KK",
        "HEADRACE_TYPO",
    ]


def test_a_check_of_the_class_is_reported_like_the_others() -> None:
    assert problems(HEADRACE_MEMORY_RATIO="2", HEADRACE_TYPO="1") == [
        "HEADRACE_MEMORY_RATIO: expected 0 to 1",
        "HEADRACE_TYPO: no such setting",
    ]


def test_a_missing_value_without_default_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(Needy, "TOOLS", {})
    assert str(caught.value).splitlines() == [
        "HEADRACE_TOOLS_ADDRESS: not set, and it has no default",
        "HEADRACE_TOOLS_TOKEN: not set, and it has no default",
    ]


def test_variables_of_other_services_and_shared_ones_are_accepted() -> None:
    others = {"HEADRACE_TOOLS_ANYTHING": "1", "HEADRACE_GATEWAY_LISTEN": "127.0.0.1:8080"}
    assert read(HEADRACE_CONFIG_DIR="x", HEADRACE_URL="http://h", **others) == Config()


@pytest.mark.parametrize("name", ["HEADRACE_MEMRY_CHAT_K", "HEADRACE_MEMORY", "HEADRACE_", "HEADRACE_LISTEN"])
def test_an_unknown_variable_with_our_prefix_is_an_error(name: str) -> None:
    assert problems(**{name: "1"}) == [f"{name}: no such setting"]


def test_secrets_are_never_shown() -> None:
    config = read(HEADRACE_MEMORY_API_KEY="sk-123")
    assert "sk-123" not in repr(config)
    assert describe_settings(config)["api_key"] == "***"
    assert describe_settings(Config())["api_key"] == ""


def test_the_settings_in_force_are_flat_and_loggable() -> None:
    described = describe_settings(read(HEADRACE_MEMORY_CACHE_DIR="/c"))
    assert len(described) == len(list_variables(Config, "MEMORY"))
    assert {type(value) for value in described.values()} <= {str, int, float, bool, type(None)}
    in_force = {"listen": "127.0.0.1:7003", "drain_s": 10.0, "data_dir": ".data", "cache_dir": "/c", "chat_k": 20}
    assert described.items() >= in_force.items()


def test_every_variable_is_listed_with_its_default() -> None:
    assert list_variables(Config, "MEMORY") == list_variables(AuthSettings, "MEMORY") | {
        "HEADRACE_MEMORY_LISTEN": "127.0.0.1:7003",
        "HEADRACE_LOG_LEVEL": "INFO",
        "HEADRACE_DRAIN_S": 10.0,
        "HEADRACE_STALL_S": 30.0,
        "HEADRACE_REUSE_PORT": False,
        "HEADRACE_MEMORY_STREAMS_MAX": 2000,
        "HEADRACE_TRANSPORT": DEFAULT,
        "HEADRACE_CONNECTION_AGE_S": 0.0,
        "HEADRACE_TLS_CERT": "",
        "HEADRACE_TLS_KEY": "",
        "HEADRACE_TLS_CA": "",
        "HEADRACE_MEMORY_METRICS_LISTEN": "",
        "HEADRACE_DATA_DIR": Path(".data"),
        "HEADRACE_MEMORY_CACHE_DIR": None,
        "HEADRACE_MEMORY_CHAT_K": 20,
        "HEADRACE_MEMORY_RATIO": 0.5,
        "HEADRACE_MEMORY_IS_OPEN": False,
        "HEADRACE_MEMORY_API_KEY": "",
    }
