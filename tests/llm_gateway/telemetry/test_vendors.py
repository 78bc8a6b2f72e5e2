"""OpenTelemetry's names of vendors, by the addresses that their documentation gives."""

import pytest

from services.llm_gateway.telemetry.attempt_span import find_vendor


@pytest.mark.parametrize(
    ("protocol", "host", "vendor"),
    [
        ("openai", "api.openai.com", "openai"),
        ("openai", "acme.openai.azure.com", "azure.ai.openai"),
        ("openai", "acme.services.ai.azure.com", "azure.ai.inference"),
        ("openai", "api.deepseek.com", "deepseek"),
        ("openai", "API.MISTRAL.AI", "mistral_ai"),
        ("openai", "api.x.ai", "x_ai"),
        ("openai", "notx.ai", "openai"),
        ("openai", "vllm.example.com", "openai"),
        ("gemini", "generativelanguage.googleapis.com", "gcp.gemini"),
        ("gemini", "europe-west1-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("anthropic", "proxy.example.com", "anthropic"),
        ("bedrock", "bedrock-runtime.eu-central-1.amazonaws.com", "aws.bedrock"),
        ("bedrock", "vpce-1.bedrock-runtime.eu-central-1.vpce.amazonaws.com", "aws.bedrock"),
    ],
)
def test_a_vendor_is_named_by_its_address(protocol: str, host: str, vendor: str) -> None:
    assert find_vendor(protocol, host) == vendor
