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
"""Orchestrators wait slightly longer than this for a compaction between runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_MEMORY_* variables; deploy/compose.yaml shows them all."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7003")
    """Its gRPC server."""

    data_dir: Path = setting(Path(".data"), name="HEADRACE_DATA_DIR")
    """Folder of everything that the services store; the logs are in its folder chats."""

    chat_dir: Path | None = setting(None, name="HEADRACE_MEMORY_CHAT_DIR", aliases=("MEMORY_CHAT_DIR",))
    """Folder of the chat logs; empty: chats/ of the data folder."""

    database_url: str = setting("", name="HEADRACE_DATABASE_URL", secret=True)
    """`postgresql://user:password@host/database` keeps the chats in PostgreSQL, for several memory services; empty: in
    files, for one."""

    database_connections_max: int = 10
    """Connections of each memory service to the database, plus one more; the total of all services must be below the
    database's limit. Lists and searches use at most three tenths of them, exports a fifth and maintenance one."""

    database_statement_timeout_s: float = 10.0
    """Maximum seconds of one statement; callers wait 15 s for a response, so a longer one does not help them."""

    chat_k: int = setting(20, name="HEADRACE_MEMORY_CHAT_K", aliases=("MEMORY_CHAT_K",))
    """Number of earlier runs of a chat that a model sees in addition to a summary, unless its agent sets
    memory.maxRuns."""

    message_history_max: int | None = setting(
        None, name="HEADRACE_MEMORY_MESSAGE_HISTORY_MAX", aliases=("MAX_MESSAGE_HISTORY",)
    )
    """Messages of earlier runs that a model sees, at least 10, unless its agent sets memory.maxMessageHistory; empty:
    no limit."""

    chat_action_tools: str = setting(
        "", name="HEADRACE_MEMORY_CHAT_ACTION_TOOLS", aliases=("MEMORY_CHAT_ACTION_TOOLS",)
    )
    """Names of tools, separated by commas, to log as actions (`_actionId` in the log), whatever their kind."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Address of the gateway, which writes the summaries of compactions."""

    summary_timeout_s: float = 600.0
    """Maximum seconds for all model calls of a compaction together, at most an hour. A call that is silent for 90 s
    ends earlier."""

    tenant_facts: bool = False
    """Whether every user may store, change and delete facts visible to all users of the tenant."""

    fact_embeddings: str = ""
    """Embedding model for facts, as provider/model of the provider file, which finds facts in other words, too; empty:
    facts are found only by their words."""

    chat_retention_days: int | None = None
    """Days, 1 or more, after its last line that a chat is deleted, unless `retention_file` sets a period; empty:
    never."""

    retention_file: Path | None = None
    """A YAML file with retention periods of chats by tenant and agent; empty: `chat_retention_days` applies to all."""

    erase_rewrites: bool = False
    """Whether an erasure has PostgreSQL rewrite its tables (VACUUM FULL), which blocks all users but removes every
    erased byte from their files. Without it the tables are vacuumed, and free space is overwritten as it is reused."""

    erase_receipt_after_s: float = 120.0
    """Minimum seconds of an erasure in PostgreSQL; by then no memory service is still processing a request accepted
    before it knew of the erasure. Increase it if statements may take longer than 10 s."""

    audit_retention_days: int | None = 365
    """Minimum days, 1 or more, that lines of the audit log are kept; empty: forever."""

    audit_tenant: str = "default"
    """Tenant with the audit records that belong to no tenant: refused sign-ins and configuration."""

    encryption_keys: str = ""
    """Master keys of the encryption at rest: `file:PATH`, with lines `NAME:KEY` of 32 bytes in base64, the first of
    which wraps; `command:PROGRAM ARGUMENTS`, called with wrap or unwrap and the tenant; or `python:MODULE:NAME`, an
    object with wrap and unwrap. Empty: no encryption."""

    encryption_enabled: bool = True
    """Whether new data is encrypted, if there are master keys. If false, it is written in plain text, and encrypted
    data is gradually decrypted."""

    encryption_strict: bool = False
    """Whether to refuse any line of a chat that is not sealed, whatever the store's own state; set it once `headrace
    chats keys` reports that all stored data is encrypted."""

    blobs: str = ""
    """`s3://bucket/prefix` stores data too large for the chats' logs (images, files, recordings) in a bucket of AWS or
    another S3-compatible store, with the AWS_* settings; empty: next to the chats."""

    s3: S3Settings = S3Settings()

    key_roles: str = ""
    """Roles, separated by commas, that callers with the scope admin may give to API keys; other roles can be given only
    by callers who have them."""

    webhook_allow: str = ""
    """Hosts and networks outside the public web that webhooks may be delivered to, separated by commas, such as
    `events.corp:8080,10.1.0.0/16`. A host listed here needs no TLS and may use any port."""

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
        # Many programs take 0 for "for ever"; here it would delete everything.
        if self.chat_retention_days == 0 or self.audit_retention_days == 0:
            name = "CHAT" if self.chat_retention_days == 0 else "AUDIT"
            raise ValueError(f"HEADRACE_MEMORY_{name}_RETENTION_DAYS: 0: expected 1 or more; empty keeps them for ever")
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
