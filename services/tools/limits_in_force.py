"""The limits in force at this service, and what the caller's tenant has used of them."""

from __future__ import annotations

from headrace.v1 import limits_pb2
from services.runtime.auth.identity import current_tenant
from services.runtime.process.limits import finish_limits, make_configured, make_fixed
from services.tools.config import Config
from services.tools.execution.executor import Executor
from services.tools.toolkit import arguments
from services.tools.toolkit.tool import RESULT_CHARS_MAX
from services.tools.transfer import uploads
from services.tools.workspace.quota import FILES_MAX


def list_limits(config: Config, executor: Executor) -> limits_pb2.ListLimitsResponse:
    sizes = [
        make_fixed("upload_bytes", bytes_max, subject=kind, kind="size", unit="bytes", per="call")
        for kind, bytes_max in uploads.LIMITS.items()
    ]
    return finish_limits(
        "tools",
        [
            make_configured(
                config,
                "commands_max",
                "TOOLS",
                name="commands",
                kind="concurrency",
                unit="commands",
                per="all",
                used=executor.count_commands(current_tenant()),
                is_full=executor.is_full,
                is_per_replica=True,
            ),
            make_configured(
                config,
                "interpreters_max",
                "TOOLS",
                name="interpreters",
                kind="concurrency",
                unit="interpreters",
                per="all",
                is_per_replica=True,
            ),
            make_configured(
                config,
                "workspace_bytes_max",
                "TOOLS",
                name="workspace_bytes",
                kind="size",
                unit="bytes",
                per="chat",
            ),
            make_fixed("workspace_files", FILES_MAX, kind="count", unit="files", per="chat"),
            make_fixed(
                "uploads", uploads.UPLOADS_MAX, kind="concurrency", unit="uploads", per="all", is_per_replica=True
            ),
            make_fixed("tool_arguments_bytes", arguments.BYTES_MAX, kind="size", unit="bytes", per="call"),
            make_fixed("tool_result_chars", RESULT_CHARS_MAX, kind="size", unit="characters", per="call"),
            *sizes,
        ],
    )
