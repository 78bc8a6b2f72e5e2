"""Settings of the memory service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.memory.context import MESSAGES_MAX, MESSAGES_MIN
from services.runtime.process.config import ServerSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_MEMORY_* variables; deploy/compose.yaml shows them all."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7003")

    data_dir: Path = setting(Path(".data"), name="HEADRACE_DATA_DIR")
    """What all services keep; the logs are in its folder chats."""

    chat_dir: Path | None = setting(None, name="HEADRACE_MEMORY_CHAT_DIR", aliases=("MEMORY_CHAT_DIR",))
    """Where the logs are, when not in data_dir."""

    database_url: str = setting("", name="HEADRACE_DATABASE_URL", secret=True)
    """postgresql://user:password@host/database keeps the chats there, for several memory services; empty: in files."""

    database_connections_max: int = 10
    """Of each service: all of them together, with one more each, must be fewer than the database allows."""

    database_statement_timeout_s: float = 10.0
    """Half of what callers wait for an answer is 15 s: a statement that takes longer is of no use to them."""

    chat_k: int = setting(20, name="HEADRACE_MEMORY_CHAT_K", aliases=("MEMORY_CHAT_K",))
    """Earlier runs that a model sees."""

    message_history_max: int = setting(40, name="HEADRACE_MEMORY_MESSAGE_HISTORY_MAX", aliases=("MAX_MESSAGE_HISTORY",))
    """Messages of earlier runs that a model sees, 10 to 100, where the agent does not say."""

    chat_action_tools: str = setting(
        "", name="HEADRACE_MEMORY_CHAT_ACTION_TOOLS", aliases=("MEMORY_CHAT_ACTION_TOOLS",)
    )
    """Names of tools, separated by commas, whose calls are kept as actions."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Where summaries are written."""

    chat_retention_days: int | None = None
    """Chats whose last line is older are deleted; not set: none is."""

    def __post_init__(self) -> None:
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            raise ValueError("HEADRACE_DATABASE_URL: expected postgresql://…")
        if self.database_statement_timeout_s <= 0:
            raise ValueError("HEADRACE_MEMORY_DATABASE_STATEMENT_TIMEOUT_S: expected more than 0")
        if not MESSAGES_MIN <= self.message_history_max <= MESSAGES_MAX:
            raise ValueError(
                f"HEADRACE_MEMORY_MESSAGE_HISTORY_MAX: {self.message_history_max}: "
                f"expected {MESSAGES_MIN} to {MESSAGES_MAX}"
            )

    @property
    def logs_dir(self) -> Path:
        return self.chat_dir or self.data_dir / "chats"

    @property
    def action_tools(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.chat_action_tools.split(",") if name.strip())
