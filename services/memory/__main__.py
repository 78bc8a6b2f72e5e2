"""`python -m services.memory`: the memory service over a folder of logs or a database."""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.v1.audit_pb2_grpc import add_AuditServiceServicer_to_server
from headrace.v1.data_pb2_grpc import add_DataStoreServiceServicer_to_server
from headrace.v1.keys_pb2_grpc import add_KeyServiceServicer_to_server
from headrace.v1.llm_pb2_grpc import LlmServiceStub
from headrace.v1.memory_pb2_grpc import add_MemoryServiceServicer_to_server
from headrace.v1.schedule_pb2_grpc import add_ScheduleServiceServicer_to_server
from headrace.v1.spend_pb2_grpc import add_SpendServiceServicer_to_server
from headrace.v1.webhook_pb2_grpc import add_WebhookServiceServicer_to_server
from services.memory.audit import AuditService
from services.memory.chats.access import ChatAccess
from services.memory.chats.append import AppendDecoder
from services.memory.compaction.compactor import Compactor
from services.memory.config import Config
from services.memory.context.loading import ContextLoader
from services.memory.context.token_counter import TokenCounters
from services.memory.context.view import ContextWindow
from services.memory.data.eraser import Eraser
from services.memory.data.erasures import TTL_MS_MAX, ErasureStore, Refusals
from services.memory.data.holds import HoldStore, check_deletion
from services.memory.data.retention import RetentionFile, run_daily_cleanup
from services.memory.data.rpcs import DataStoreService
from services.memory.engines import open_engine
from services.memory.facts.recall import FactVectors
from services.memory.facts.rpcs import FactStore
from services.memory.keys.rpcs import KeyService, read_changes, take_calls
from services.memory.keys.store import KeyStore
from services.memory.keys.suspensions import LivingUsers, SuspensionStore
from services.memory.schedules.rpcs import ScheduleService
from services.memory.schedules.store import ScheduleStore
from services.memory.service import MemoryService
from services.memory.spend import SpendService
from services.memory.webhooks.deliverer import delivering
from services.memory.webhooks.rpcs import WebhookService
from services.memory.webhooks.run_webhooks import RunWebhookStore, make_find_end
from services.memory.webhooks.store import WebhookStore
from services.runtime.auth.audit_records import EVENT
from services.runtime.auth.callers import MEMORY
from services.runtime.auth.setup import following_keys
from services.runtime.clock import now_ms
from services.runtime.ending import CannotServe
from services.runtime.net.allow_list import parse_allow_list
from services.runtime.process import program
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.memory.storage.audit import AuditTrail
    from services.memory.storage.engine import Engine
    from services.memory.webhooks.deliverer import Send
    from services.memory.webhooks.sender import Answer
    from services.runtime.auth.settings import AuthSettings
    from services.runtime.auth.stored_keys import StoredKeys


async def main(config: Config) -> None:
    async with (
        open_channel(config.llm_gateway_address, build_caller_metadata(config.server.auth, MEMORY)) as channel,
        open_engine(config) as engine,
        run_daily_cleanup(engine, make_retention(config), config.audit_retention_days),
        delivering(engine.records.webhooks, make_send(config)),
        following_own_keys(config, engine) as keys,
        Refusals(engine).following() as refusals,
        serving_grpc(
            config.server,
            [
                build_service(engine, config, LlmServiceStub(channel), refusals=refusals),
                build_key_service(engine, auth=config.server.auth, roles=config.key_roles.replace(",", " ").split()),
                build_schedule_service(engine, auth=config.server.auth),
                build_spend_service(engine),
                build_webhook_service(engine, config),
                build_audit_service(engine),
                build_data_service(engine, refusals),
            ],
            is_usable=engine.is_up,
            drain=engine.close_watches,
            keys=keys,
            record_refused=partial(record_refused, engine.audit),
            check_call=refusals.check_call,
        ),
    ):
        await program.wait_for_stop()


def make_retention(config: Config) -> RetentionFile:
    """Return the retention periods of chats. Raises CannotServe if their file is invalid at the start."""
    file = RetentionFile(config.retention_file, config.chat_retention_days)
    try:
        file.read()
    except (ValueError, OSError) as error:
        raise CannotServe(f"{config.retention_file}: {error}") from error
    return file


async def record_refused(audit: AuditTrail, address: str, count: int) -> None:
    """Record how often an address was refused in one minute."""
    await audit.record_of("", EVENT, address=address, count=count, service=MEMORY)


def build_service(
    engine: Engine,
    config: Config,
    llm: LlmServiceAsyncStub | None = None,
    refusals: Refusals | None = None,
) -> GrpcService:
    """Build the service over `engine`. Without `llm` every compaction falls back; without `refusals` users being erased
    are not refused."""
    window, counting = ContextWindow(config.chat_k, config.message_history_max or sys.maxsize), TokenCounters(engine)
    access = ChatAccess(engine)
    loading, compacting = (
        ContextLoader(window, counting),
        Compactor(engine, access, window, counting, llm, config.summary_timeout_s),
    )
    vectors = FactVectors(llm, config.fact_embeddings) if llm is not None and config.fact_embeddings else None
    read_holds = HoldStore(engine).read_in_force
    facts = FactStore(engine.records.facts, access, read_holds, allows_tenant=config.tenant_facts, vectors=vectors)
    decoder, refusals = AppendDecoder(counting, config.action_tools), refusals or Refusals(engine)
    servicer = MemoryService(engine, access, decoder, loading, compacting, facts, refusals)
    return GrpcService("headrace.v1.MemoryService", servicer, add_MemoryServiceServicer_to_server)


def build_key_service(
    engine: Engine, clock: Callable[[], int] = now_ms, auth: AuthSettings | None = None, **limits: Any
) -> GrpcService:
    """Build the service for the API keys in `engine`. `clock` returns Unix milliseconds, `auth` names the valid
    credentials, and `limits` are KeyStore's."""
    keys = KeyStore(engine.records.keys, clock, uses=engine.key_uses, **limits)
    suspensions = SuspensionStore(engine.records.keys, clock)
    users = LivingUsers(engine.records.keys, auth) if auth is not None else None
    schedules = ScheduleStore(engine.records.schedules, ChatAccess(engine), clock, users)
    servicer = KeyService(keys, suspensions, engine.audit, schedules.note_holds)
    return GrpcService("headrace.v1.KeyService", servicer, add_KeyServiceServicer_to_server)


def following_own_keys(config: Config, engine: Engine) -> AbstractAsyncContextManager[StoredKeys]:
    """Follow the API keys of `engine` without network calls."""
    keys = KeyStore(engine.records.keys, uses=engine.key_uses)
    return following_keys(config.server.auth, partial(read_changes, keys), partial(take_calls, keys))


def build_schedule_service(
    engine: Engine, clock: Callable[[], int] = now_ms, auth: AuthSettings | None = None
) -> GrpcService:
    """Build the service for the schedules in `engine`. `clock` returns Unix milliseconds; `auth` names the valid
    credentials."""
    users = LivingUsers(engine.records.keys, auth) if auth is not None else None
    store = ScheduleStore(engine.records.schedules, ChatAccess(engine), clock, users, engine.records.agents)
    servicer = ScheduleService(store, engine.audit, partial(check_deletion, engine))
    return GrpcService("headrace.v1.ScheduleService", servicer, add_ScheduleServiceServicer_to_server)


def build_spend_service(engine: Engine, clock: Callable[[], int] = now_ms) -> GrpcService:
    """Build the service that reports spending; `clock` returns Unix milliseconds."""
    return GrpcService("headrace.v1.SpendService", SpendService(engine, clock), add_SpendServiceServicer_to_server)


def build_webhook_service(engine: Engine, config: Config) -> GrpcService:
    """Build the service for the webhooks in `engine`."""
    allow = parse_allow_list(config.webhook_allow)
    find_end = make_find_end(ChatAccess(engine), engine.chats)
    run_webhooks = RunWebhookStore(engine.records.webhooks, find_end, allow)
    servicer = WebhookService(WebhookStore(engine.records.webhooks, allow), run_webhooks, engine.audit)
    return GrpcService("headrace.v1.WebhookService", servicer, add_WebhookServiceServicer_to_server)


def build_audit_service(engine: Engine) -> GrpcService:
    """Build the service for the audit log in `engine`."""
    servicer = AuditService(engine.audit)
    return GrpcService("headrace.v1.AuditService", servicer, add_AuditServiceServicer_to_server)


def build_data_service(
    engine: Engine, refusals: Refusals, clock: Callable[[], int] = now_ms, *, held_ms: int = TTL_MS_MAX
) -> GrpcService:
    """Build the service for users' stored data; `refusals` learns of erasures as they begin.

    The claim on an erasure's last step is extended by `held_ms` each time.
    """
    erasures = ErasureStore(engine, refusals, clock, held_ms=held_ms)
    servicer = DataStoreService(engine, erasures, Eraser(engine, erasures, clock), HoldStore(engine, clock))
    return GrpcService("headrace.v1.DataStoreService", servicer, add_DataStoreServiceServicer_to_server)


def make_send(config: Config) -> Send:
    """Create the function that posts events to the hosts that `config` allows."""
    allow = parse_allow_list(config.webhook_allow)

    async def send(url: str, headers: dict[str, str], body: bytes) -> Answer:
        # Imported at the first delivery: it brings an HTTP client, which most services never need.
        from services.memory.webhooks.sender import Sender

        return await Sender(allow).send(url, headers, body)

    return send


if __name__ == "__main__":
    program.run_service(Config, "MEMORY", main)
