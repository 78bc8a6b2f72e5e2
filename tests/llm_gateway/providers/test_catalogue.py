"""The provider file: refusals and their messages, which version stays active, which entry serves a model."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headrace.errors import InvalidRequest, Overloaded
from headrace.v1 import llm_pb2
from services.llm_gateway.config import Config
from services.llm_gateway.providers.catalogue import Catalogue
from services.llm_gateway.providers.provider_file import Providers
from services.llm_gateway.server import gateway
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.health import check_peers
from tests.support.llm_gateway.gateway import Asking, provider_entry

URL = "http://127.0.0.1:1/v1"


def load_catalogue(tmp_path: Path, *entries: dict[str, Any]) -> Catalogue:
    catalogue = Catalogue(tmp_path / "providers.json")
    write(tmp_path, *entries)
    catalogue.reload()
    return catalogue


def write(tmp_path: Path, *entries: dict[str, Any]) -> None:
    (tmp_path / "providers.json").write_bytes(orjson.dumps({"providers": entries}))


UNKNOWN = "unknown, or not supported by this version"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (provider_entry("ftp://x"), "providers.0.baseUrl"),
        (
            provider_entry(URL, protocol="smtp"),
            "providers.0.protocol: Input should be 'openai', 'openai_responses', 'anthropic', 'gemini' or 'bedrock'",
        ),
        (provider_entry(URL, models=[]), "providers.0.models"),
        (provider_entry(URL, timeouts={"idleMs": 0}), "providers.0.timeouts.idleMs"),
        (provider_entry(URL, timeout={}), f"providers.0.timeout: {UNKNOWN}; did you mean 'timeouts'?"),
        (provider_entry(URL, timeouts={"idle": 1}), f"providers.0.timeouts.idle: {UNKNOWN}; did you mean 'idleMs'?"),
        (provider_entry(URL, apiKeys=["sk-a-real-key"]), "providers.0.apiKeys.0: must be env:NAME or file:/path"),
        (provider_entry(URL, fallback=["siliconflow"]), "providers.0.fallback.0"),
        (provider_entry(URL, fallback=["nobody/sim-1"]), "provider 'sim': fallback 'nobody/sim-1'"),
        (provider_entry(URL, fallback=["sim/nothing"]), "provider 'sim': fallback 'sim/nothing'"),
        ({"key": "x"}, "providers.0.protocol: Field required"),
    ],
)
def test_a_bad_file_is_refused_with_its_field_and_the_last_good_one_stays(
    tmp_path: Path, entry: dict[str, Any], problem: str
) -> None:
    catalogue = load_catalogue(tmp_path, provider_entry(URL))
    write(tmp_path, entry)
    with capture_logs() as logs:
        catalogue.reload()
    assert REGISTRY.get_sample_value("headrace_refused_files", {"kind": "providers"}) == 1
    assert [provider.key for provider in catalogue.providers] == ["sim"]
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("provider file refused", "error")
    assert line["file"].endswith("providers.json")
    assert any(found.startswith(problem) for found in line["problem"].splitlines())
    assert "sk-a-real-key" not in repr(line)


@pytest.mark.parametrize("text", ["{", "[]", '{"providers": 1}', ""])
def test_a_file_that_is_no_provider_file_is_refused(tmp_path: Path, text: str) -> None:
    catalogue = load_catalogue(tmp_path, provider_entry(URL))
    (tmp_path / "providers.json").write_text(text)
    with capture_logs() as logs:
        catalogue.reload()
    assert logs[0]["event"] == "provider file refused"
    assert len(catalogue.providers) == 1


def test_before_any_valid_file_every_model_is_overloaded_not_unknown(tmp_path: Path) -> None:
    (tmp_path / "providers.json").write_text("{")
    catalogue = Catalogue(tmp_path / "providers.json")
    catalogue.reload()
    with pytest.raises(Overloaded, match="no provider file has been valid since"):
        catalogue.find_model("sim", "sim-1")
    with pytest.raises(Overloaded, match="no provider file has been valid since"):
        catalogue.list_models("", "")
    write(tmp_path, provider_entry(URL))
    catalogue.reload()
    assert catalogue.find_model("sim", "sim-1")[0].key == "sim"


def test_a_key_used_twice_is_refused(tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert not load_catalogue(tmp_path, provider_entry(URL), provider_entry(URL)).providers
    assert "used twice: ['sim']" in logs[0]["problem"]


@pytest.mark.parametrize(
    ("model", "entry"),
    [("gpt-4o", "gpt-4o"), ("gpt-4o-2024", "gpt-4o"), ("gpt-4o-mini", "gpt-4o-mini"), ("gpt-4o-mini-x", "gpt-4o-mini")],
)
def test_a_model_is_matched_by_the_longest_configured_prefix(tmp_path: Path, model: str, entry: str) -> None:
    models = [{"name": "gpt-4o"}, {"name": "gpt-4o-mini"}]
    catalogue = load_catalogue(tmp_path, provider_entry(URL, models=models))
    assert catalogue.find_model("sim", model)[1].name == entry
    assert [known.name for _, known in catalogue.list_models("sim", model)] == [entry]
    with pytest.raises(InvalidRequest):
        catalogue.find_model("sim", "gpt-4oo")
    assert catalogue.list_models("sim", "gpt-4oo") == []


async def test_models_can_be_listed_all_or_filtered(asking: Asking) -> None:
    models = [{"name": "a"}, {"name": "b"}]
    async with asking(models=models, summaryModel="b", spare={"key": "x", "models": models}) as gateway:

        async def list_entries(**filters: str) -> list[tuple[str, str, str]]:
            reply = await gateway.llm.ListModels(llm_pb2.ListModelsRequest(**filters), timeout=50)
            return [(info.provider_key, info.model, info.summary_model) for info in reply.models]

        assert await list_entries() == [("sim", "a", "b"), ("sim", "b", "b"), ("x", "a", ""), ("x", "b", "")]
        assert await list_entries(provider_key="x") == [("x", "a", ""), ("x", "b", "")]
        assert await list_entries(provider_key="sim", model="a-2") == [("sim", "a", "b")]
        assert await list_entries(provider_key="nobody", model="a") == []


async def test_models_at_the_simulators_address_are_simulated(asking: Asking) -> None:
    async with asking(spare={"key": "x", "baseUrl": "env:SIMULATOR_URL"}) as gateway:
        reply = await gateway.llm.ListModels(llm_pb2.ListModelsRequest(), timeout=50)
    assert {info.provider_key: info.is_simulated for info in reply.models} == {"sim": False, "x": True}


@pytest.mark.parametrize(
    ("price", "spare_price", "dearest"),
    [
        ({"inputPerMTok": 1, "outputPerMTok": 2}, {"inputPerMTok": 3, "outputPerMTok": 1}, (3.0, 2.0)),
        ({"inputPerMTok": 4, "cacheWritePerMTok": 5, "outputPerMTok": 2}, {"inputPerMTok": 3}, (5.0, 2.0)),
        ({"inputPerMTok": 4}, None, None),
        (None, {"inputPerMTok": 4}, None),
    ],
)
async def test_the_maximum_price_includes_all_fallbacks(
    asking: Asking, price: object, spare_price: object, dearest: tuple[float, float] | None
) -> None:
    spare = {"models": [{"name": "sim-2", "price": spare_price}]}
    models = [{"name": "sim-1", "price": price}]
    async with asking(models=models, spare=spare, fallback=["spare/sim-2"]) as gateway:
        request = llm_pb2.ListModelsRequest(provider_key="sim")
        (info,) = (await gateway.llm.ListModels(request, timeout=50)).models
    known = info.HasField("input_usd_per_mtok_max"), info.HasField("output_usd_per_mtok_max")
    assert known == (dearest is not None,) * 2
    if dearest is not None:
        assert (info.input_usd_per_mtok_max, info.output_usd_per_mtok_max) == dearest


async def test_a_changed_file_takes_effect_without_a_restart(asking: Asking) -> None:
    async with asking() as gateway:
        gateway.provider_file.write_text("{")
        await asyncio.sleep(0.6)
        assert (await gateway.chat()).error is None
        entry = provider_entry(gateway.sim.base_url, models=[{"name": "sim-2"}])
        gateway.provider_file.write_bytes(orjson.dumps({"providers": [entry]}))
        names = ["sim-1"]
        async with asyncio.timeout(50):
            while names != ["sim-2"]:
                await asyncio.sleep(0.05)
                reply = await gateway.llm.ListModels(llm_pb2.ListModelsRequest(), timeout=50)
                names = [model.model for model in reply.models]


async def test_the_gateway_is_ready_once_a_provider_file_was_valid(tmp_path: Path) -> None:
    (tmp_path / "providers.json").write_text("{")
    config = Config(server=ServerSettings(listen="127.0.0.1:0", drain_s=0.0), config_dir=tmp_path)
    async with asyncio.timeout(50), gateway(config, {}) as running, open_channel(running.addresses[0]) as channel:
        assert await check_peers({"gateway": channel}) == {"gateway": False}
        write(tmp_path, provider_entry(URL))
        while await check_peers({"gateway": channel}) != {"gateway": True}:
            await asyncio.sleep(0.05)
        (tmp_path / "providers.json").write_text("{")
        await asyncio.sleep(0.6)  # longer than a change takes to be seen
        assert await check_peers({"gateway": channel}) == {"gateway": True}, "the last good one stays in force"


async def test_a_missing_secret_is_named_and_the_provider_stays_listed(asking: Asking, tmp_path: Path) -> None:
    key_file = tmp_path / "key.txt"
    async with asking(apiKeys=["env:NO_SUCH_KEY", f"file:{key_file}"]) as gateway:
        result = await gateway.chat()
        assert result.reason == "PROVIDER_AUTHENTICATION"
        assert "env:NO_SUCH_KEY" in result.failure.message
        assert (await gateway.llm.ListModels(llm_pb2.ListModelsRequest(), timeout=50)).models
        key_file.write_text("from-a-file\n")
        assert (await gateway.chat()).error is None
        assert gateway.sim.requests[-1].headers["authorization"] == "Bearer from-a-file"


async def test_a_base_url_may_come_from_the_environment(asking: Asking) -> None:
    async with asking() as gateway:
        entry = provider_entry("env:SIM_URL")
        gateway.provider_file.write_bytes(orjson.dumps({"providers": [entry]}))
        async with asyncio.timeout(50):
            while (result := await gateway.chat()).error is None:
                await asyncio.sleep(0.05)
        assert result.reason == "PROVIDER_UNAVAILABLE"
        assert "SIM_URL is not set" in result.failure.message
        gateway.env["SIM_URL"] = gateway.sim.base_url + "/"
        assert (await gateway.chat()).error is None


def test_the_example_provider_file_is_valid() -> None:
    path = Path(__file__).parents[3] / "examples" / "providers.json"
    providers = Providers.model_validate_json(path.read_bytes()).providers
    assert {"simulator", "bailian", "siliconflow", "openai", "deepseek"} <= {entry.key for entry in providers}
    assert all(entry.api_keys for entry in providers if entry.key != "simulator")
