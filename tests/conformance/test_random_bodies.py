"""Bodies that are nearly right, at random but always the same ones: both facades judge and understand them alike."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from headrace.v1 import agent_pb2
from services.facade.requests.json_body import map_fields
from tests.support.facade.both import both
from tests.support.facade.messages import UUID
from tests.support.facade.peers import Peer

BODIES = 300
NAMES = sorted(map_fields(agent_pb2.QueryRequest.DESCRIPTOR) | map_fields(agent_pb2.Scene.DESCRIPTOR))
WORDS = ["a", "", "user", "reject", UUID, "x" * 300, "🧭", "水"]
NUMBERS = [0, 1, -1, 2**31, 2**31 - 1, 2**63, 2**64, 1.5, 1e30, 10**30, True, False, None]
BYTES = b'{}[],:"\\0123456789eE.-+ntfu \n\xff\x00'


class Bodies(random.Random):
    """Makes them."""

    def name(self) -> str:
        letters = list(self.choice(NAMES))
        for _ in range(self.choice((0, 0, 1, 3))):
            letters.insert(self.randrange(len(letters)), self.choice("aeiouKI_水\0"))
            del letters[self.randrange(len(letters))]
        return "".join(letters)

    def value(self, depth: int = 0) -> Any:
        kind = self.random() if depth < 3 else 0
        if kind < 0.7:
            return self.choice(WORDS if kind < 0.4 else NUMBERS)
        if kind < 0.8:
            return [self.value(depth + 1) for _ in range(self.randint(0, 3))]
        return {self.name(): self.value(depth + 1) for _ in range(self.randint(0, 4))}

    def body(self) -> bytes:
        made = {self.name(): self.value() for _ in range(self.randint(0, 4))} | {"message": self.choice(WORDS)}
        body = bytearray(json.dumps(made, ensure_ascii=self.random() < 0.5).encode())
        if self.random() < 0.2:
            body[self.randrange(len(body))] = self.choice(BYTES)
        return bytes(body)


async def test_random_bodies_are_judged_and_understood_alike(tmp_path: Path) -> None:
    bodies, end = Bodies(1), agent_pb2.AgentDelta(seq=1, run_cancel=agent_pb2.RunCancel())
    seen = set[int]()
    async with both(tmp_path, Peer([end])) as facades:
        for _ in range(BODIES):
            body = bodies.body()
            one, other = [await facades.one(http, "POST", "/api/query", body, ()) for http in facades.sessions.values()]
            seen.add(one.status)
            if b"must be valid JSON in UTF-8" in one.body:  # each in its parser's words
                assert b"must be valid JSON in UTF-8" in other.body, body
                continue
            assert one.comparable == other.comparable, body
            if one.status == 200:
                assert facades.peer.heard[-1] == facades.peer.heard[-2], body
    assert seen == {200, 400}
