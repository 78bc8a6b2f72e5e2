"""smolagents: its model, and its agent, which calls tools and returns its answer by calling `final_answer`."""

from __future__ import annotations

from typing import Any

from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report
from smolagents import ChatMessage, LogLevel, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import MessageRole

FORM = {
    "type": "json_schema",
    "json_schema": {"name": "place", "schema": Place.model_json_schema() | {"additionalProperties": False}},
}


def chat(model: str) -> OpenAIModel:
    return OpenAIModel(model, api_base=URL, api_key="none", client_kwargs={"max_retries": 0})


def say(text: str) -> list[ChatMessage]:
    return [ChatMessage(MessageRole.USER, [{"type": "text", "text": text}])]


def text(model: str) -> Any:
    return chat(model).generate(say(COUNT)).content


def streamed_text(model: str) -> Any:
    return Pieces([delta.content or "" for delta in chat(model).generate_stream(say(COUNT))]).tell()


def function(model: str) -> Any:
    return run_agent(model, stream_outputs=False)


def streamed_function(model: str) -> Any:
    return run_agent(model, stream_outputs=True)


def run_agent(model: str, *, stream_outputs: bool) -> Any:
    locator = Locator()

    @tool
    def locate(exact: bool) -> str:
        """Tell where the user is.

        Args:
            exact: Whether the street is wanted too.
        """
        return locator.locate(exact)

    agent = ToolCallingAgent(
        [locate], chat(model), stream_outputs=stream_outputs, max_steps=3, verbosity_level=LogLevel.OFF
    )
    return [agent.run(WHERE), locator.calls]


def typed(model: str) -> Any:
    return Place.model_validate_json(chat(model).generate(say(WHICH), response_format=FORM).content)


def streamed_typed(model: str) -> Any:
    pieces = [delta.content or "" for delta in chat(model).generate_stream(say(WHICH), response_format=FORM)]
    return Place.model_validate_json("".join(pieces))


if __name__ == "__main__":
    report("smolagents", globals())
