"""A server that sends elicitation, sampling and roots requests during a call, in both protocol versions."""

from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel

from tests.support.tools.mcp_http import PIXEL, Http

PAY_URL = "https://pay.example/7"


class Seats(BaseModel):
    seats: int


def ask_seats(table: str) -> Elicit[Seats]:
    return Elicit(f"How many seats at {table}?", Seats)


def ask_model() -> Sample:
    content = TextContent(text="A line on the sea, please")
    return Sample([SamplingMessage(role="user", content=content)], max_tokens=5000, system_prompt="You are a poet")


def ask_roots() -> ListRoots:
    return ListRoots()


def make_asking_app(http: Http) -> MCPServer:
    app = MCPServer("asking")

    @app.tool()
    def book(table: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> str:
        """Book a table."""
        http.effects.append(f"{table}: {seats.seats}")
        return f"booked {table} for {seats.seats}"

    @app.tool()
    async def poem(text: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
        """Write a poem."""
        assert isinstance(text.content, TextContent)
        return f"{text.model}: {text.content.text} ({text.stop_reason})"

    @app.tool(annotations=ToolAnnotations(read_only_hint=True))
    def where(roots: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
        """Say where."""
        return " ".join(f"{root.name}={root.uri}" for root in roots.roots)

    @app.tool()
    async def pay(context: Context) -> str | InputRequiredResult:
        """Have a bill paid."""
        if http.is_legacy:
            answer = await context.elicit_url("Pay the bill", PAY_URL, "e1")
            return f"paid: {answer.action}"
        if context.input_responses:
            return f"paid: {context.input_responses['bill'].action}"  # pyright: ignore[reportAttributeAccessIssue] - an ElicitResult
        params = ElicitRequestURLParams(message="Pay the bill", url=PAY_URL)
        return InputRequiredResult(input_requests={"bill": ElicitRequest(params=params)})

    @app.tool()
    def ship() -> str:
        """Ship what was paid, which has to be agreed to at an address first (2025-11-25)."""
        http.effects.append("asked to ship")
        if len(http.effects) == 1:
            visit = ElicitRequestURLParams(message="Agree to the terms", url=PAY_URL, elicitation_id="e2")
            raise UrlElicitationRequiredError([visit])
        return "shipped"

    @app.resource("note://one", description="A note")
    def note() -> str:
        return "remember the milk"

    @app.resource("pixel://one", mime_type="image/png")
    def pixel() -> bytes:
        return PIXEL

    @app.resource("note://{day}/list")
    def notes(day: str) -> str:
        return f"the notes of {day}"

    return app
