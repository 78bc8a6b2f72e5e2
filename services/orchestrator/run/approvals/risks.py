"""Built-in risk patterns, which decide whether a person is asked; they are no sandbox."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Risk: TypeAlias = Literal["critical", "high", "medium", "low"]

RISKS: tuple[Risk, ...] = get_args(Risk)
"""Risk levels, gravest first."""

_RM = r"\brm\s+(?:-[\w-]+\s+)*-(?:\w*[rR]\w*|-recursive)\b"

BUILT_IN: dict[Risk, dict[str, str]] = {
    "critical": {
        "deletes a whole file system": _RM + r"[^|;&\n]*\s(?:/|/\*|~/?|\$HOME/?)(?:\s|[;&|]|$)",
        "makes a file system": r"\bmkfs(?:\.\w+)?\b",
        "writes to a disk device": r"(?:\bdd\b[^|;&\n]*\bof=|>\s*)/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk)",
        "a fork bomb": r":\s*\(\s*\)\s*\{[^}]*:\s*\|\s*:",
    },
    "high": {
        "deletes folders": _RM,
        "runs as another user": r"(?:^|[\s;&|(`])(?:sudo|doas|su\s+-)\b",
        "pipes into a shell": (
            r"\|\s*(?:sudo\s+)?(?:/\S*/)?(?:ba|z|da|k|fi)?sh\b|\b(?:ba|z|da)?sh\s+(?:-c\s+)?[\"']?[<$]\("
        ),
        "destructive SQL": (
            r"(?i)\b(?:drop\s+(?:table|database|schema|index|view|user)|truncate\s+(?:table\s+)?\w+|delete\s+from"
            r"|alter\s+table\s+\S+\s+drop)\b"
        ),
        "a password": r"(?i)\b\w*(?:password|passwd|pwd|secret)\w*[\"']?\s*[=:]\s*[\"']?[^\s\"']",
        "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
        "an access key": (
            r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[\w-]{10,})"
        ),
        "an API key": r"(?i)\b\w*(?:api[_-]?key|access[_-]?token|auth[_-]?token)[\"']?\s*[=:]\s*[\"']?[^\s\"']",
    },
    "medium": {
        "a private network address": (
            r"(?:^|[^\d.])(?:10\.\d{1,3}|127\.\d{1,3}|192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}(?:\.\d{1,3})?(?:[^\d.]|$)"
            r"|(?i:\blocalhost\b)|\[(?:::1|(?i:f[cd][0-9a-f]{2}|fe80):[0-9a-fA-F:]*)\]"
        ),
        "installs packages": (
            r"\b(?:pip[\d.]*|uv\s+pip|conda|apt|apt-get|dnf|yum|apk|brew|gem|cargo|npm|pnpm)\s+(?:-\S+\s+)*(?:install|add|i)\b"
            r"|\byarn\s+add\b|\bgo\s+install\b"
        ),
    },
    "low": {
        "changes permissions": r"\b(?:chmod|chown)\s",
    },
}
