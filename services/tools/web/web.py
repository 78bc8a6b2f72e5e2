"""What tools that use the web share: a fetcher, a reader of pages, a search endpoint. One for the service."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.v1 import agent_pb2, tools_pb2
from services.tools.web.extractor import Extractor
from services.tools.web.fetcher import Fetcher
from services.tools.web.page import Page, read_page
from services.tools.web.search import Search


@dataclass(frozen=True, slots=True)
class Web:
    """The web as this installation may use it."""

    fetcher: Fetcher = Fetcher()
    search: Search = Search("")
    extractor: Extractor = field(default_factory=Extractor)

    async def read(self, url: str) -> Page:
        """The page at `url` as text. Raises ToolFailed."""
        return await read_page(await self.fetcher.fetch(url), self.extractor)


def source(number: int, call_id: str, title: str, url: str) -> tools_pb2.ToolDelta:
    """A source as its readers see it; the id is unique among the call's."""
    return tools_pb2.ToolDelta(
        source=agent_pb2.SourceSnapshot(source_id=f"{call_id}_s_{number}", title=title or None, url=url)
    )
