"""boto3 as a client of the server at URL: stream an answer to "hello", run a tool loop about the weather, fail with
"busy", and print the results as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

credentials = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
config = Config(retries={"total_max_attempts": 1})
client = boto3.client("bedrock-runtime", endpoint_url=sys.argv[1], config=config, **credentials)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"toolSpec": {"name": name, "inputSchema": {"json": CITY}}} for name in ("weather", "time")]
Message = dict[str, Any]


def user(*blocks: Message) -> Message:
    return {"role": "user", "content": [*blocks]}


told: Message = {"text": "", "tokens": None, "calls": [], "answer": ""}
for event in client.converse_stream(modelId="sim-1", messages=[user({"text": "hello"})])["stream"]:
    told["text"] += event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")
    if "metadata" in event:
        told["tokens"] = event["metadata"]["usage"]["outputTokens"]

messages = [user({"text": "weather"})]
blocks: dict[int, Message] = {}
for event in client.converse_stream(modelId="sim-1", messages=messages, toolConfig={"tools": TOOLS})["stream"]:
    if "contentBlockStart" in event:
        start = event["contentBlockStart"]
        blocks[start["contentBlockIndex"]] = {"toolUse": start["start"]["toolUse"] | {"input": ""}}
    if "contentBlockDelta" in event:
        piece = event["contentBlockDelta"]
        block, delta = blocks.setdefault(piece["contentBlockIndex"], {}), piece["delta"]
        if "text" in delta:
            block["text"] = block.get("text", "") + delta["text"]
        elif "toolUse" in delta:
            block["toolUse"]["input"] += delta["toolUse"]["input"]
        else:
            thought = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {})
            for name, value in delta["reasoningContent"].items():
                thought[name] = thought.get(name, "") + value
answer = [blocks[index] for index in sorted(blocks)]
for block in answer:
    if "toolUse" in block:
        block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
uses = [block["toolUse"] for block in answer if "toolUse" in block]
told["calls"] = [[use["name"], use["input"]] for use in uses]
results = [{"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": "snow"}]}} for use in uses]
messages += [{"role": "assistant", "content": answer}, user(*results)]
whole = client.converse(modelId="sim-1", messages=messages, toolConfig={"tools": TOOLS})
told["answer"] = "".join(block.get("text", "") for block in whole["output"]["message"]["content"])
try:
    client.converse(modelId="sim-1", messages=[user({"text": "busy"})])
except ClientError as error:
    told["error"] = error.response["ResponseMetadata"]["HTTPStatusCode"]
print(json.dumps(told))
