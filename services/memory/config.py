"""Settings of the memory service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.memory.context.view import MESSAGES_MIN
from services.memory.encryption.master_keys import KINDS, OpenKeys, make_open_keys
from services.memory.storage.s3.settings import S3Settings, parse_place
from services.runtime.net.allow_list import parse_allow_list
from services.runtime.process.config import ServerSettings, setting

SUMMARY_TIMEOUT_S_MAX = 3_600.0
"""Orchestrators wait a little longer than that for a compaction between runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_MEMORY_* variables; deploy/compose.yaml shows them all."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7003")
    """Its gRPC server."""

    data_dir: Path = setting(Path(".data"), name="HEADRACE_DATA_DIR")
    """Folder of everything that the services keep; the logs are in its folder chats."""

    chat_dir: Path | None = setting(None, name="HEADRACE_MEMORY_CHAT_DIR", aliases=("MEMORY_CHAT_DIR",))
    """Folder of the chat logs; empty: chats/ of the data folder."""

    database_url: str = setting("", name="HEADRACE_DATABASE_URL", secret=True)
    """`postgresql://user:password@host/database` keeps the chats in PostgreSQL, for several memory services; empty: in
    files, for one."""

    database_connections_max: int = 10
    """Connections of each memory service to the database, beside one more: those of all services together must be fewer
    than the database allows."""

    database_statement_timeout_s: float = 10.0
    """Seconds that one statement may take; callers wait 15 s for an answer, so a longer one is of no use to them."""

    chat_k: int = setting(20, name="HEADRACE_MEMORY_CHAT_K", aliases=("MEMORY_CHAT_K",))
    """Number of earlier runs of a chat that a model sees beside a summary, where its agent (memory.maxRuns) does not
    say."""

    message_history_max: int | None = setting(
        None, name="HEADRACE_MEMORY_MESSAGE_HISTORY_MAX", aliases=("MAX_MESSAGE_HISTORY",)
    )
    """Messages of earlier runs that a model sees, 10 or more, where its agent (memory.maxMessageHistory) does not
    say; empty: no limit."""

    chat_action_tools: str = setting(
        "", name="HEADRACE_MEMORY_CHAT_ACTION_TOOLS", aliases=("MEMORY_CHAT_ACTION_TOOLS",)
    )
    """Names of tools, separated by commas, whose calls are kept as actions (`_actionId` in the log), whatever their
    kind."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Address of the gateway, which writes the summaries of compactions."""

    summary_timeout_s: float = 600.0
    """Seconds that all model calls of a compaction may take together, at most an hour. A call that is silent for 90 s
    ends before."""

    tenant_facts: bool = False
    """Whether every user may store, change and delete facts that all users of the tenant see."""

    fact_embeddings: str = ""
    """Model that makes vectors of facts, as provider/model of the provider file, so that a fact is found in other words
    too; empty: facts are found by their words alone."""

    chat_retention_days: int | None = None
    """Days after its last line that a chat is deleted, where `retention_file` does not say; empty: never."""

    retention_file: Path | None = None
    """A YAML file that says by tenant and agent how long chats are kept; empty: all as long as
    `chat_retention_days`."""

    erase_rewrites: bool = False
    """Whether an erasure has PostgreSQL write its tables anew (VACUUM FULL), while everybody waits, so that not a byte
    of what was erased is in their files. Without, they are vacuumed: what is free is overwritten as it is used."""

    erase_receipt_after_s: float = 120.0
    """Seconds that an erasure in PostgreSQL lasts at least: by then no memory service has a request on its way that it
    has taken before it knew of the erasure. More, where statements may take longer than 10 s."""

    audit_retention_days: int | None = 365
    """Days that lines of the audit log are kept at least; empty: for ever."""

    audit_tenant: str = "default"
    """Tenant in whose audit log stands what is no tenant's: refused sign-ins and configuration."""

    encryption_keys: str = ""
    """Master keys of the encryption at rest: `file:PATH`, of lines `NAME:KEY` with 32 bytes in base64, the first of
    which wraps; `command:PROGRAM ARGUMENTS`, which is called with wrap or unwrap and the tenant; or
    `python:MODULE:NAME`, an object with wrap and unwrap. Empty: nothing is encrypted."""

    encryption_enabled: bool = True
    """Whether what is written is encrypted, where there are master keys; false: it is written in plain text, and what
    is encrypted is decrypted by and by."""

    encryption_strict: bool = False
    """Whether no line of a chat is taken that is not sealed, whatever the store says of itself; set it once `headrace
    chats keys` says that all that is stored is encrypted."""

    blobs: str = ""
    """`s3://bucket/prefix` keeps what is too large for the logs of chats (pictures, files, recordings) in a bucket of
    AWS, or of another store that speaks S3, with the AWS_* settings; empty: beside the chats."""

    s3: S3Settings = S3Settings()

    key_roles: str = ""
    """Roles, with commas between, that whoever has the scope admin may give to API keys; others are given by those who
    have them."""

    webhook_allow: str = ""
    """Hosts and networks beside the public web that webhooks may be delivered to, separated by commas, such as
    `events.corp:8080,10.1.0.0/16`; a host named here may do without TLS, and have any port."""

    def __post_init__(self) -> None:
        try:
            parse_allow_list(self.webhook_allow)
        except ValueError as error:
            raise ValueError(f"HEADRACE_MEMORY_WEBHOOK_ALLOW: {error}") from error
        if self.encryption_keys and not self.encryption_keys.startswith(KINDS):
            raise ValueError(f"HEADRACE_MEMORY_ENCRYPTION_KEYS: expected one of {', '.join(KINDS)}")
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            raise ValueError("HEADRACE_DATABASE_URL: expected postgresql://…")
        if self.blobs:
            try:
                parse_place(self.blobs)
            except ValueError as error:
                raise ValueError(f"HEADRACE_MEMORY_BLOBS: {self.blobs!r}: {error}") from error
            self.s3.check()
        if self.fact_embeddings and not all(self.fact_embeddings.partition("/")):
            raise ValueError("HEADRACE_MEMORY_FACT_EMBEDDINGS: expected provider/model")
        if self.fact_embeddings and not self.llm_gateway_address:
            raise ValueError("HEADRACE_MEMORY_FACT_EMBEDDINGS: needs HEADRACE_MEMORY_LLM_GATEWAY_ADDRESS")
        if self.database_statement_timeout_s <= 0:
            raise ValueError("HEADRACE_MEMORY_DATABASE_STATEMENT_TIMEOUT_S: expected more than 0")
        if not 0 < self.summary_timeout_s <= SUMMARY_TIMEOUT_S_MAX:
            raise ValueError(
                f"HEADRACE_MEMORY_SUMMARY_TIMEOUT_S: expected more than 0, at most {SUMMARY_TIMEOUT_S_MAX:g}"
            )
        if self.erase_receipt_after_s < 0:
            raise ValueError("HEADRACE_MEMORY_ERASE_RECEIPT_AFTER_S: expected 0 or more")
        if self.message_history_max is not None and self.message_history_max < MESSAGES_MIN:
            raise ValueError(
                f"HEADRACE_MEMORY_MESSAGE_HISTORY_MAX: {self.message_history_max}: expected {MESSAGES_MIN} or more"
            )

    def make_open_keys(self) -> OpenKeys:
        return make_open_keys(self.encryption_keys, encrypts=self.encryption_enabled, is_strict=self.encryption_strict)

    @property
    def logs_dir(self) -> Path:
        return self.chat_dir or self.data_dir / "chats"

    @property
    def action_tools(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.chat_action_tools.split(",") if name.strip())
