"""The clients of the OpenAI adapter, and their rows in docs/clients.md."""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / "build" / "clients"
PAGE = ROOT / "docs" / "clients.md"

# Exercises, whole and streamed.
TEXT = ("text", "streamed text")
FUNCTION = ("function", "streamed function")
TYPED = ("typed", "streamed typed")
BY_A_CALL = ("typed by a call", "streamed typed by a call")

LARGE = ("frameworks", "open_webui")
"""Environments that the nightly makes, the check does not."""


@dataclass(frozen=True)
class Client:
    name: str
    program: str
    """File in tests/clients/python or tests/clients/node."""

    environment: str
    """Folder under build/clients; "dev" for the environment of these tests."""

    exercises: tuple[str, ...]

    def build_command(self, *arguments: str) -> list[str] | None:
        """Return the command that runs the program; None where its environment was not made."""
        folder = ENVIRONMENTS / self.environment
        if self.environment == "dev":
            return [sys.executable, str(ROOT / "tests/clients/python" / self.program), *arguments]
        if not (folder / "done").exists():
            return None
        if self.environment == "node":
            keep_links = ["--preserve-symlinks", "--preserve-symlinks-main"]
            return ["node", *keep_links, str(folder / "programs" / self.program), *arguments]
        return [str(folder / "bin" / "python"), str(ROOT / "tests/clients/python" / self.program), *arguments]

    def build_row(self, version: str) -> str:
        works = [
            ", ".join(way for way, name in zip(("whole", "streamed"), pair, strict=True) if name in self.exercises)
            or "–"
            for pair in (TEXT, FUNCTION, TYPED, BY_A_CALL)
        ]
        target = "make nightly" if self.environment in LARGE else "make check"
        return f"| {self.name} | {version} | {' | '.join(works)} | `{target}` |"


COMMON = (*TEXT, *FUNCTION, *TYPED)
CLIENTS = [
    Client("openai (Python)", "openai_python.py", "dev", COMMON),
    Client("openai (Node)", "openai_node.mjs", "node", COMMON),
    Client("OpenAI Agents SDK", "openai_agents.py", "agents", COMMON),
    Client("pydantic-ai (`output_type`)", "pydantic_ai_agent.py", "agents", (*COMMON, *BY_A_CALL)),
    Client("instructor (JSON, JSON_SCHEMA, TOOLS)", "instructor_modes.py", "instructor", (*TYPED, *BY_A_CALL)),
    Client("Vercel AI SDK (`generateObject`, `streamText`)", "ai_sdk.mjs", "node", COMMON),
    Client("LangChain (`with_structured_output`)", "langchain_chat.py", "frameworks", (*COMMON, *BY_A_CALL)),
    Client("LangGraph (`create_agent`)", "langgraph_agent.py", "frameworks", (*COMMON, "typed by a call")),
    Client("LlamaIndex", "llama_index_llm.py", "frameworks", (*TEXT, *FUNCTION, *BY_A_CALL)),
    Client("litellm", "litellm_completion.py", "frameworks", COMMON),
    Client("smolagents", "smolagents_agents.py", "frameworks", COMMON),
]

OTHERS = (
    "@ag-ui/client",
    "@ag-ui/client in a page of React",
    *("a2a-sdk (Python)", "a2a-sdk (Python), as a server"),
    *("mcp (Python)", "@modelcontextprotocol/sdk", "@modelcontextprotocol/client", "@modelcontextprotocol/ext-tasks"),
    "MCP Inspector",
    "Open WebUI",
    "grpc-go",
    "connect-node (TypeScript)",
    "grpc-java",
    "grpc-js",
    "grpcurl",
    "ghz",
    "buf curl",
)
"""Clients whose rows are checked by the tests that have them."""
