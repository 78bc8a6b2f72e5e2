"""headrace providers: how the model providers do."""

from __future__ import annotations

from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.tables import NONE, print_table
from headrace.v1 import llm_pb2

HEAD = ("model", "breaker", "attempts", "errors", "median", "p95", "running", "waiting", "refused")


def _list_cells(provider: llm_pb2.ProviderHealth, model: llm_pb2.ModelHealth) -> list[str]:
    times = [
        str(getattr(model, name)) if model.HasField(name) else NONE for name in ("first_delta_ms", "first_delta_ms_p95")
    ]
    return [
        f"{provider.provider_key}/{model.model}",
        f"{model.breaker} for {model.blocked_ms / 1000:.0f} s" if model.blocked_ms else model.breaker,
        str(model.attempts),
        f"{model.error_ratio:.0%}" if model.HasField("error_ratio") else NONE,
        *times,
        str(provider.running),
        str(provider.waiting),
        ", ".join(model.left_out),
    ]


providers = add_command(
    None,
    "providers",
    "OperatorService/ListProviders",
    lambda response: print_table(
        HEAD,
        [_list_cells(provider, model) for provider in response.providers for model in provider.models],
        right=HEAD[2:-1],
    ),
    about="""Show the health of each model: its breaker, and of the last five minutes errors and times to the first
    delta (ms).

    `refused` are fields of requests that the model does not take.

    Attempts, and calls that run and wait, are those of the tenant.""",
)
