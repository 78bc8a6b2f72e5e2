from __future__ import annotations

from collections.abc import Sequence

from headrace.v1 import common_pb2


class CredentialNeeded(Exception):
    """The call needs a credential of the user that is missing or was refused; nothing took effect."""

    def __init__(self, name: str, problem: str) -> None:
        """`problem` is `missing` or `refused`."""
        super().__init__(f"credential {name!r} is {problem}")
        self.name = name
        self.problem = problem


class InputNeeded(Exception):
    """The call's server asks a person, and continues after the answer."""

    def __init__(self, asks: Sequence[common_pb2.InputNeed], resume_state: str) -> None:
        """`resume_state` is returned to the tool when the call continues; it is stored with the call."""
        super().__init__(f"{len(asks)} questions to a person")
        self.asks = asks
        self.resume_state = resume_state


class ToolFailed(Exception):
    """The tool cannot do what was requested; the text explains it to the model, in a result with `ok` false."""
