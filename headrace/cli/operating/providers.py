"""headrace providers: how the model providers do."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import print_table


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    model: str
    breaker: str
    blocked_ms: int = 0
    attempts: int = 0
    error_ratio: float | None = None
    first_delta_ms: int | None = None
    first_delta_ms_p95: int | None = None
    left_out: list[str] = []

    @property
    def cells(self) -> list[str]:
        breaker = f"{self.breaker} for {self.blocked_ms / 1000:.0f} s" if self.blocked_ms else self.breaker
        errors = "-" if self.error_ratio is None else f"{self.error_ratio:.0%}"
        times = ["-" if time is None else str(time) for time in (self.first_delta_ms, self.first_delta_ms_p95)]
        return [breaker, str(self.attempts), errors, *times]


class _Provider(msgspec.Struct, frozen=True, rename="camel"):
    provider_key: str
    models: list[_Model]
    running: int = 0
    waiting: int = 0

    @property
    def cells(self) -> list[str]:
        return [str(self.running), str(self.waiting)]


@click.command()
@url_option
def providers(url: str) -> None:
    """Show how each model does: its breaker, and of the last five minutes errors and times to the first delta (ms).

    `refused` are fields of requests that the model does not take.

    Attempts, and calls that run and wait, are those of the tenant; needs a credential with the scope operate.
    """
    data = make_request(url, lambda facade: facade.get("/api/operator/providers"))
    rows = [
        [
            f"{provider.provider_key}/{model.model}",
            *model.cells,
            str(provider.running),
            str(provider.waiting),
            ", ".join(model.left_out),
        ]
        for provider in msgspec.json.decode(data, type=list[_Provider])
        for model in provider.models
    ]
    head = ("model", "breaker", "attempts", "errors", "median", "p95", "running", "waiting", "refused")
    print_table(head, rows, right=head[2:-1])
