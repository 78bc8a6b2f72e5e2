"""The simulator as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp


async def test_prints_its_address_serves_and_stops_at_sigterm() -> None:
    async with asyncio.timeout(200), aiohttp.ClientSession() as http:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.simulator", "--port", "0", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        base_url = (await process.stdout.readline()).decode().strip()
        async with http.get(f"{base_url}/models") as response:
            assert "sim-1" in {model["id"] for model in (await response.json())["data"]}
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_bad_script_is_named_with_its_place(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"steps": [{"nothing": 1}]}]')
    async with asyncio.timeout(200):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.simulator", "--script", str(script), stderr=asyncio.subprocess.PIPE
        )
        _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"0.steps.0" in stderr
