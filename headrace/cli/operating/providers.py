"""headrace providers: show the health of model providers."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import Show
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


def _print_providers(providers: Sequence[llm_pb2.ProviderHealth]) -> None:
    rows = [_list_cells(provider, model) for provider in providers for model in provider.models]
    print_table(HEAD, rows, right=HEAD[2:-1])


providers = add_command(
    None,
    "providers",
    "OperatorService/ListProviders",
    Show(_print_providers, is_list=True),
    about="""Show the health of each model.

    Lists its circuit breaker, and the errors and times to the first delta (ms) of the last five minutes. Attempts, and
    the numbers of running and waiting calls, are the tenant's own. `refused` are request fields that the model does not
    accept.""",
)
