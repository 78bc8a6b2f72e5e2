"""Which readiness the facade reports while its peers are away."""

import aiohttp

from tests.support.facade.fronts import DEFAULTS, PEERS, embedded


async def test_a_facade_stays_in_its_service_while_its_peers_are_away() -> None:
    async with embedded(dict.fromkeys(PEERS, "unix:/nobody"), DEFAULTS) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/readyz") as response:
            assert (response.status, (await response.json())["data"]) == (200, {"facade": True})
        async with http.get("/readyz?all") as response:
            assert (response.status, (await response.json())["data"]) == (503, dict.fromkeys(PEERS, False))
        async with http.get("/api/agents") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "PROVIDER_UNAVAILABLE")
        async with http.post("/api/query", json={"message": "hi"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "PROVIDER_UNAVAILABLE")
