"""Keeps found documents, each address once, numbered as they are cited."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.tools.web.page import Page
from services.tools.web.search import Hit

TEXT_CHARS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Document:
    number: int
    query: str
    title: str
    url: str
    text: str

    @property
    def head(self) -> str:
        return f"[{self.number}] {self.title}\n{self.url}"


@dataclass(slots=True)
class Findings:
    documents: list[Document] = field(default_factory=list[Document])
    failures: list[str] = field(default_factory=list[str])

    @property
    def queries(self) -> list[str]:
        return list(dict.fromkeys(document.query for document in self.documents))

    def add_hits(self, query: str, hits: list[Hit], pages: dict[str, Page]) -> list[Document]:
        known = {document.url for document in self.documents}
        added: list[Document] = []
        for hit in hits:
            if hit.url in known:
                continue
            known.add(hit.url)
            page = pages.get(hit.url)
            text = page.text if page and len(page.text) > len(hit.snippet) else hit.snippet
            number = len(self.documents) + len(added) + 1
            added.append(Document(number, query, hit.title, hit.url, text[:TEXT_CHARS_MAX]))
        self.documents += added
        return added

    def format_documents(self, chars_max: int) -> str:
        """Formats the documents, each cut to its share of `chars_max`."""
        share = chars_max // max(len(self.documents), 1)
        return "\n\n".join(
            f"{document.head}\nfound for: {document.query}\n{document.text[:share]}" for document in self.documents
        )
