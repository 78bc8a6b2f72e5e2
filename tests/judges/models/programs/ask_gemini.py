"""google-genai before the server at URL: stream an answer to "hello", and print its text and tokens as JSON."""

from __future__ import annotations

import json
import sys

from google import genai
from google.genai import types

client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=sys.argv[1]))
texts: list[str] = []
tokens: int | None = None
for answer in client.models.generate_content_stream(model="sim-1", contents="hello"):
    texts.append(answer.text or "")
    if answer.usage_metadata is not None:
        tokens = answer.usage_metadata.candidates_token_count
print(json.dumps({"text": "".join(texts), "tokens": tokens}))
