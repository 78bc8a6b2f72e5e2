"""headrace replicas: who runs what."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_table


class _Replica(msgspec.Struct, frozen=True, rename="camel"):
    address: str
    runs: int = 0
    lease_expires_at: int = 0
    is_alive: bool = False
    is_this: bool = False

    @property
    def cells(self) -> list[str]:
        state = "answers" if self.is_this else "alive" if self.is_alive else "leases expired"
        return [self.address, state, str(self.runs), format_time(self.lease_expires_at) if self.runs else "-"]


@click.command()
@url_option
def replicas(url: str) -> None:
    """List the orchestrators that have runs of the tenant: how many, and until when their last lease is.

    Needs a credential with the scope operate.
    """
    data = make_request(url, lambda facade: facade.get("/api/operator/replicas"))
    found = msgspec.json.decode(data, type=list[_Replica])
    print_table(("address", "state", "runs", "lease until"), [one.cells for one in found], right=("runs",))
