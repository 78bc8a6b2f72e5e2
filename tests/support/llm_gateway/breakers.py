"""A clock that the test moves, and calls whose outcomes a breaker counts."""

from services.llm_gateway.limits.breaker import Breaker


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def calls(breaker: Breaker, *outcomes: bool | None, tenant: str = "a") -> None:
    for outcome in outcomes:
        breaker.end_call(breaker.start_call(tenant), succeeded=outcome)
