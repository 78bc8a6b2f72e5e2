"""Assembles the gateway, for the process and for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from headrace.v1 import llm_pb2_grpc
from services.llm_gateway.calls.model_caller import ModelCaller
from services.llm_gateway.config import Config
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.limits.breaker import Breakers
from services.llm_gateway.limits.quota import Accounts
from services.llm_gateway.providers.catalogue import Catalogue
from services.llm_gateway.providers.credentials import Credentials
from services.llm_gateway.service import NAME, LlmService
from services.llm_gateway.telemetry.interaction_log import InteractionLog
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.callers import LLM_GATEWAY
from services.runtime.files.file_watch import REFRESH_INTERVAL_MS, watching_paths
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import GrpcService, RunningServer, serving_grpc

PROVIDER_FILE = "providers.json"


@asynccontextmanager
async def gateway(
    config: Config, env: Mapping[str, str], *, look_ms: int = REFRESH_INTERVAL_MS
) -> AsyncGenerator[RunningServer]:
    """Serve inside the block; `env` has the secrets, and `look_ms` is the poll interval of the provider file."""
    path = config.config_dir / PROVIDER_FILE
    catalogue = Catalogue(path)
    interaction_log = InteractionLog(config.interaction_log_enabled, config.interaction_log_mask_sensitive)
    accounts, breakers = Accounts(config.replicas), Breakers()

    def forget_removed(_: object) -> None:
        accounts.keep_configured(catalogue.providers)
        breakers.keep_configured(catalogue.providers)

    async with Pool() as pool, watching_paths([path], catalogue.reload, forget_removed, interval_ms=look_ms):
        caller = ModelCaller(catalogue, Credentials(env), accounts, breakers, pool, interaction_log)
        service = GrpcService(NAME, LlmService(catalogue, caller), llm_pb2_grpc.add_LlmServiceServicer_to_server)
        async with AsyncExitStack() as stack:
            refused = None
            if config.memory_address:
                credentials = build_caller_metadata(config.server.auth, LLM_GATEWAY)
                memory = await stack.enter_async_context(open_channel(config.memory_address, credentials))
                refused = AuditRecords(memory, LLM_GATEWAY).count_refused()
            served = serving_grpc(
                config.server, [service], is_configured=lambda: catalogue.is_loaded, record_refused=refused
            )
            yield await stack.enter_async_context(served)
