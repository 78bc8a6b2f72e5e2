"""The form of an answer, in words for models whose provider has no field for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from headrace.v1 import common_pb2, llm_pb2
    from services.llm_gateway.providers.provider_file import Model

DEFAULT_NAME = "answer"


def has_form_in_words(request: llm_pb2.ChatRequest, model: Model) -> bool:
    return request.HasField("output_format") and not model.keeps_to_schemas


def describe_form(wanted: common_pb2.OutputFormat) -> str:
    about = f"The answer is {wanted.description}\n" if wanted.description else ""
    return f"{about}Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{wanted.schema}"


def is_any_object(wanted: common_pb2.OutputFormat) -> bool:
    return orjson.loads(wanted.schema) == {"type": "object"}
