"""One model call as a stream of deltas: started, what the provider sends, usage, finish."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, Unsupported
from headrace.v1.llm_pb2 import LlmDelta, LlmStarted
from services.llm_gateway.http import posting
from services.llm_gateway.interaction_log import Call
from services.llm_gateway.openai_request import request_body
from services.llm_gateway.openai_stream import Answer
from services.llm_gateway.pairing import check_pairs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    import aiohttp

    from headrace.v1 import common_pb2
    from headrace.v1.llm_pb2 import ChatRequest
    from services.llm_gateway.catalogue import Catalogue
    from services.llm_gateway.credentials import Credentials
    from services.llm_gateway.interaction_log import InteractionLog
    from services.llm_gateway.provider_file import Model

PATH = "/chat/completions"


@dataclass(frozen=True, slots=True)
class Chats:
    """Calls models. Shared by all RPCs."""

    catalogue: Catalogue
    credentials: Credentials
    session: aiohttp.ClientSession
    interaction_log: InteractionLog

    def stream(self, request: ChatRequest) -> AsyncGenerator[LlmDelta]:
        """The deltas of one answer. Closing the generator closes the connection to the provider.

        Raises:
            HeadraceError: As StreamChat's comment in llm.proto lists them.
        """
        return self.interaction_log.shown(self._answered(request))

    async def _answered(self, request: ChatRequest) -> AsyncGenerator[LlmDelta]:
        check_pairs(request.messages)
        provider, model = self.catalogue.find(request.provider_key, request.model)
        if provider.protocol != "openai":
            raise Unsupported(f"provider {provider.key!r}: protocol {provider.protocol!r} is not spoken yet")
        body = request_body(request, provider, model)
        key, url = self.credentials.key_for(provider), self.credentials.base_url_for(provider) + PATH
        answer = Answer(provider.key, request.model, _call_ids(request), key)
        call = Call(request.stage, provider.key, request.model)
        try:
            yield LlmDelta(started=LlmStarted(provider=provider.key, model=request.model, attempt=call.attempt))
            async with posting(self.session, provider, request.model, url, body, key) as stream:
                while not answer.is_over:
                    for delta in answer.feed(await stream.read()):
                        if call.first_delta_s is None:
                            call.first_delta_s = time.monotonic()
                            stream.has_begun()
                        yield delta
                finish = answer.finish()
                call.usage, call.outcome = _priced(answer.usage(), model), finish.reason
                yield LlmDelta(usage=call.usage)
                yield LlmDelta(finish=finish)
                await stream.end()
        except HeadraceError as error:
            call.outcome = error.reason
            if answer.deltas:
                call.usage = _priced(answer.usage(), model)
                yield LlmDelta(usage=call.usage)
            raise
        finally:
            call.deltas = answer.deltas
            self.interaction_log.ended(call)


def _call_ids(request: ChatRequest) -> Iterable[str]:
    return (call.id for message in request.messages for call in message.tool_calls)


def _priced(usage: common_pb2.Usage, model: Model) -> common_pb2.Usage:
    if (price := model.price) is not None:
        dollars = usage.input_tokens * price.input_per_m_tok + usage.output_tokens * price.output_per_m_tok
        usage.cost_usd = dollars / 1_000_000
    return usage
