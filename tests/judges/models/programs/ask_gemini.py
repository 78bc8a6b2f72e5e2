"""google-genai as a client of the server at URL: stream an answer to "hello", run a tool loop about the weather, fail
with "busy", and print the results as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from google import genai
from google.genai import errors, types

client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=sys.argv[1]))
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [types.FunctionDeclaration(name=name, parameters_json_schema=CITY) for name in ("weather", "time")]
CONFIG = types.GenerateContentConfig(tools=[types.Tool(function_declarations=TOOLS)])

told: dict[str, Any] = {"text": "", "tokens": None, "calls": [], "answer": ""}
for answer in client.models.generate_content_stream(model="sim-1", contents="hello"):
    told["text"] += answer.text or ""
    if answer.usage_metadata is not None:
        told["tokens"] = answer.usage_metadata.candidates_token_count

contents = [types.Content(role="user", parts=[types.Part(text="weather")])]
parts: list[types.Part] = []
for answer in client.models.generate_content_stream(model="sim-1", contents=contents, config=CONFIG):
    parts += answer.candidates[0].content.parts or []
calls = [part.function_call for part in parts if part.function_call]
told["calls"] = [[call.name, call.args] for call in calls]
results = [
    types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": "snow"}))
    for call in calls
]
contents += [types.Content(role="model", parts=parts), types.Content(role="user", parts=results)]
told["answer"] = client.models.generate_content(model="sim-1", contents=contents, config=CONFIG).text
try:
    client.models.generate_content(model="sim-1", contents="busy")
except errors.APIError as error:
    told["error"] = error.code
print(json.dumps(told))
