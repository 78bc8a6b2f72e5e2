"""A user with a webhook for all events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import webhook_pb2
from services.runtime.randomness import new_uuid
from trials.simulation.outside.receiver import URL

if TYPE_CHECKING:
    from trials.simulation.people.person import Person

CALL_S = 20.0


async def make_webhook(user: Person) -> None:
    """Create a webhook for all events; events committed after the acknowledgement must be delivered."""
    request = webhook_pb2.CreateWebhookRequest(url=URL, webhook_id=new_uuid())
    answer = await user.try_until_answered(lambda: user.webhooks.CreateWebhook(request, timeout=CALL_S))
    if answer is None:
        user.problems.append(f"the webhook was refused: {user.refusal}")
        return
    # By memory's clock, which also sets the times of lines.
    user.world.hooked_ms = answer.webhook.updated_at + CALL_S * 1000
