"""The suite in front of providers, and the judges of its requests; each is started once, when first needed."""

import gzip
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.judges.environments import ROOT
from tests.judges.models.conversations import Capture, capturing
from tests.judges.models.judging import Judge, running_judge

VOCABULARY = ROOT / "services/runtime/tokens/vocabularies/o200k_base.tiktoken.gz"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def capture(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Capture]:
    async with capturing(tmp_path_factory.mktemp("capture")) as capture:
        yield capture


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mistral() -> AsyncGenerator[Judge]:
    async with running_judge("mistral_common", "judge_by_mistral.py") as judge:
        yield judge


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def older_mistral() -> AsyncGenerator[Judge]:
    """A judge of the last version that allows no user message after a tool result."""
    async with running_judge("mistral_common_1_11_0", "judge_by_mistral.py") as judge:
        yield judge


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harmony(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Judge]:
    folder: Path = tmp_path_factory.mktemp("vocabulary")
    (folder / "o200k_base.tiktoken").write_bytes(gzip.decompress(VOCABULARY.read_bytes()))
    async with running_judge("harmony", "judge_by_harmony.py", TIKTOKEN_ENCODINGS_BASE=str(folder)) as judge:
        yield judge
