"""What a run has cost, and what it may still spend, in a few words."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """Of the whole run, its sub-agents included."""

    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    @property
    def words(self) -> str:
        """For people."""
        parts = [f"{self.input_tokens} tokens in, {self.output_tokens} out", _count(self.model_calls, "model call")]
        if self.tool_calls:
            parts.append(_count(self.tool_calls, "tool call"))
        if self.cost_usd is not None:
            parts.append(f"${self.cost_usd:.4f}")
        return ", ".join(parts) + (" (estimated)" if self.estimated else "")


class BudgetLeft(msgspec.Struct, frozen=True, rename="camel"):
    """Of a live run."""

    model_calls: int = 0
    tool_calls: int = 0
    time_ms: int = 0
    tokens: int | None = None
    cost_usd: float | None = None

    @property
    def words(self) -> str:
        """For people."""
        parts = [_count(self.model_calls, "model call"), _count(self.tool_calls, "tool call")]
        parts.append(f"{self.time_ms // 1000} s")
        if self.tokens is not None:
            parts.append(f"{self.tokens} tokens")
        if self.cost_usd is not None:
            parts.append(f"${self.cost_usd:.4f}")
        return f"left: {', '.join(parts)}"


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """A run as GET /api/run gives it."""

    usage: Usage = Usage()
    budget_left: BudgetLeft | None = None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
