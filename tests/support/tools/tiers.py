"""The tiers that the tests run in: those that work on this machine, with a notice of the omitted ones."""

import asyncio
import sys

from services.tools.sandbox.tiers import try_tier

BUBBLEWRAP_PROBLEM = asyncio.run(try_tier("bubblewrap"))

TIERS = ("process",) if BUBBLEWRAP_PROBLEM else ("process", "bubblewrap")

if BUBBLEWRAP_PROBLEM:
    print(f"NOTICE: the bubblewrap tier is not tested: {BUBBLEWRAP_PROBLEM}", file=sys.__stderr__)
