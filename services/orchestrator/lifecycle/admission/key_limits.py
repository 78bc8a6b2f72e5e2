"""What API keys made by RPC may have at once, and what becomes of runs when their keys end or users are suspended."""

from __future__ import annotations

from headrace.errors import PermissionDenied, QuotaExceeded
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.lifecycle.parking import find_due_at
from services.orchestrator.run.run import Run
from services.runtime.auth import identity
from services.runtime.auth.identity import Identity
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.capacity import RETRY_AFTER_S


class KeyLimits:
    def __init__(self, keys: StoredKeys, live: LiveRuns, *, ends_runs: bool = False) -> None:
        """With `ends_runs`, a key that ends takes its live runs with it."""
        self._keys = keys
        self._live = live
        self._ends_runs = ends_runs
        keys.listen(self.cancel_ended)

    def may_park(self, run: Run) -> bool:
        """Whether the run need not be found here when its key ends."""
        return not (self._ends_runs and self._keys.find(run.identity.credential))

    def check_requester(self, run: Run) -> None:
        """Raises PermissionDenied for a run whose user is suspended: nobody's answer makes it go on."""
        if user := self._keys.find_suspended(run.identity):
            raise PermissionDenied(f"user {user!r}, whose run this is, is suspended; release them first", runId=run.id)

    def is_suspended(self, who: Identity) -> bool:
        return bool(self._keys.find_suspended(who))

    def find_runs_max(self) -> int:
        """Return how many live runs the caller's key may have, over all replicas; 0: as many as it likes."""
        key = self._keys.find(identity.require_identity().credential)
        return key.runs_max if key is not None else 0

    def check(self, request_id: str) -> None:
        """Raises QuotaExceeded for a new query when the caller's key has as many live runs here as it may have; with
        those of other replicas memory counts them when the query is stored."""
        credential = identity.require_identity().credential
        key = self._keys.find(credential)
        if key is None or not key.runs_max:
            return
        own = [run for run in self._live.all() if run.identity.credential == credential]
        if len(own) >= key.runs_max and all(run.query.request_id != request_id for run in own):
            raise QuotaExceeded(
                f"the API key has {key.runs_max} live runs already; try again when one has ended",
                retry_after_s=RETRY_AFTER_S,
                limit=key.runs_max,
            )

    def cancel_ended(self) -> None:
        """Cancel live runs whose keys have ended, and those of suspended users that do not wait for people alone."""
        for run in self._live.all():
            key = self._keys.find(run.identity.credential)
            has_ended = self._ends_runs and key is not None and key.has_ended
            has_gone = self.is_suspended(run.identity) and not find_due_at(run, self._live)
            if (has_ended or has_gone) and run.control.mode != "now":
                run.control.cancel()
