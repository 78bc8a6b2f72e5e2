"""boto3 before the server at URL: stream an answer to "hello" by Converse, and print its text and tokens as JSON."""

from __future__ import annotations

import json
import sys

import boto3
from botocore.config import Config

credentials = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
config = Config(retries={"total_max_attempts": 1})
client = boto3.client("bedrock-runtime", endpoint_url=sys.argv[1], config=config, **credentials)
texts: list[str] = []
tokens: int | None = None
answer = client.converse_stream(modelId="sim-1", messages=[{"role": "user", "content": [{"text": "hello"}]}])
for event in answer["stream"]:
    texts.append(event.get("contentBlockDelta", {}).get("delta", {}).get("text", ""))
    if "metadata" in event:
        tokens = event["metadata"]["usage"]["outputTokens"]
print(json.dumps({"text": "".join(texts), "tokens": tokens}))
