"""A deliverer to be killed: `python -m tests.memory.webhooks.killed PLACE` sends the deliveries waiting there until
then.
"""

import asyncio
import sys
from pathlib import Path

from services.memory.webhooks.deliverer import delivering
from services.memory.webhooks.sender import Sender
from tests.support.memory.engines import Files, Tables, open_engine
from tests.support.memory.webhooks import ALLOW
from tests.support.webhook_receiver import resolve_here


async def main(place: str) -> None:
    kept = Tables(place) if place.startswith("postgresql:") else Files(Path(place))
    async with open_engine(kept) as engine, delivering(engine.records.webhooks, Sender(ALLOW, resolve_here).send):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
