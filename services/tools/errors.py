from __future__ import annotations


class CredentialNeeded(Exception):
    """The call needs a credential of the user that nobody has supplied, or that was refused; nothing took effect."""

    def __init__(self, name: str, problem: str) -> None:
        """`problem` is `missing` or `refused`."""
        super().__init__(f"credential {name!r} is {problem}")
        self.name = name
        self.problem = problem


class ToolFailed(Exception):
    """The tool cannot do what was asked; the text tells the model why, in a result with `ok` false."""
