"""Reads tenant-agents.yaml at start and on change; a bad file leaves the last good grants in force."""

from __future__ import annotations

from pathlib import Path

import structlog

from headrace.regular_files import read_regular_file
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.grants.rules import Grants, GrantsError, TenantGrants, parse_grants
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal

NAME = "tenant-agents.yaml"

FILE_BYTES_MAX = 256 * 1024

log = structlog.get_logger()


class GrantsFile:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.current = Grants()
        """Replaced, never changed, by a reload. Until the file was good once, nothing is granted."""

    def reload(self) -> None:
        """Read the file; log problems, and never raise."""
        try:
            if self._path is None or not self._path.exists():
                self.current = Grants()
            else:
                self.current = parse_grants(read_regular_file(self._path, FILE_BYTES_MAX))
        except (GrantsError, OSError) as error:
            REFUSED_FILES.labels("tenant_agents").set(1)
            report_refusal(
                "tenants' grants refused", file=str(self._path), problem=str(error), last_good_version_stays=True
            )
        else:
            REFUSED_FILES.labels("tenant_agents").set(0)
            log.info("tenants' grants in force", grants=len(self.current.rules))

    def find_for(self, agent: Definition) -> TenantGrants | None:
        """Return what the agent may reach now; None for one of the operator's, which these grants are not about."""
        return self.current.select(agent.tenant) if agent.tenant else None
