"""Every exception of sockets, TLS and the parser is translated: none reaches a caller unchanged."""

import errno
from collections.abc import Iterator

import httptools
import pytest

from headrace.errors import BadFrame, HeadraceError, ProviderUnavailable, StreamStalled
from services.llm_gateway.http.client import EXCHANGE_FAILURES, translate_exchange_error, translating_connect_errors
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.gateway import provider_entry

PROVIDER = Provider.model_validate(provider_entry("http://127.0.0.1:1/v1"))


def of_the_system(cls: type[BaseException] = OSError) -> Iterator[type[BaseException]]:
    """Yield those of the interpreter, ssl and socket; what other libraries derive is never raised here."""
    if cls.__module__ in ("builtins", "ssl", "socket"):
        yield cls
    for derived in cls.__subclasses__():
        yield from of_the_system(derived)


OF_THE_PARSER = [cls for name, cls in vars(httptools).items() if name.startswith("HttpParser")]


def fail_exchange(failure: BaseException) -> None:
    try:
        raise failure
    except EXCHANGE_FAILURES as error:
        raise translate_exchange_error(PROVIDER, error) from error


@pytest.mark.parametrize("cls", sorted({*of_the_system(), *OF_THE_PARSER}, key=str), ids=lambda cls: cls.__name__)
def test_every_exception_of_an_exchange_is_translated(cls: type[BaseException]) -> None:
    with pytest.raises(HeadraceError) as caught:
        fail_exchange(cls.__new__(cls))
    assert not isinstance(caught.value, BadFrame)
    assert caught.value.retriable


def test_a_connection_that_the_system_gave_up_is_broken_not_silent() -> None:
    with pytest.raises(ProviderUnavailable):
        fail_exchange(OSError(errno.ETIMEDOUT, "timed out"))
    with pytest.raises(StreamStalled):
        fail_exchange(TimeoutError())


@pytest.mark.parametrize("cls", sorted({*of_the_system()}, key=str), ids=lambda cls: cls.__name__)
def test_every_exception_of_connecting_is_translated(cls: type[BaseException]) -> None:
    with pytest.raises(HeadraceError) as caught, translating_connect_errors(PROVIDER, None):
        raise cls.__new__(cls)
    assert caught.value.reason == "PROVIDER_UNAVAILABLE"


def test_the_parser_has_exceptions() -> None:
    assert len(OF_THE_PARSER) == 6
