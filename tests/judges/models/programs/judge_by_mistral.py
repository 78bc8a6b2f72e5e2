"""Mistral's own rules for requests: on each line of stdin the chat completions of a conversation, on each line of
stdout every validator's verdict on each of them; an empty text means that the request is accepted.

As in a service with OpenAI's API, each is converted by `from_openai` and validated for serving.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from mistral_common.protocol.instruct.request import ChatCompletionRequest, ResponseFormats
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion

VERSIONS = ("v7", "v11", "v13", "v15")
"""Of tokenizers, since Mistral Large 2411 and Mistral Small 3. Models before them (v3: Mixtral, Mistral Nemo) take no
text beside calls, in no form."""

OLD_FIELDS = {"model", "tool_choice", "temperature", "top_p", "max_tokens"}
NEW_FIELDS = OLD_FIELDS | {"response_format", "parallel_tool_calls"}
# Older packages know no JSON Schema and no word about parallel calls; both are the server's, and no prompt shows them.
FIELDS = NEW_FIELDS if hasattr(ResponseFormats, "json_schema") else OLD_FIELDS


def judge(body: dict[str, Any], version: str) -> str:
    given = {name: body[name] for name in FIELDS & body.keys()}
    try:
        request = ChatCompletionRequest.from_openai(body["messages"], body.get("tools"), **given)
        get_validator(TokenizerVersion(version), ValidationMode.serving).validate_request(request)
    except Exception as error:  # whatever it raises is its verdict
        return f"{type(error).__name__}: {error}"
    return ""


warnings.simplefilter("ignore")
for line in sys.stdin:
    print(
        json.dumps([{version: judge(body, version) for version in VERSIONS} for body in json.loads(line)]), flush=True
    )
