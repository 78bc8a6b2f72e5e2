"""Names of spans and attributes, in one place because the conventions still change.

OpenTelemetry semantic conventions 1.44 (https://opentelemetry.io/docs/specs/semconv/, seen 2026-11-21; GenAI:
open-telemetry/semantic-conventions-genai); our own names begin with `headrace.`.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

ERROR_TYPE = "error.type"

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"

RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"

OPERATION = "gen_ai.operation.name"
CHAT, EMBEDDINGS, INVOKE_AGENT, EXECUTE_TOOL = "chat", "embeddings", "invoke_agent", "execute_tool"

AGENT_ID = "gen_ai.agent.id"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
OUTPUT_TYPE = "gen_ai.output.type"
EMBEDDING_DIMENSIONS = "gen_ai.embeddings.dimension.count"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

REQUEST_ID = "headrace.request.id"
RUN_ID = "headrace.run.id"
RUN_STATE = "headrace.run.state"
PROVIDER_KEY = "headrace.provider"
STAGE = "headrace.stage"
ATTEMPT = "headrace.attempt"
DELTAS = "headrace.deltas"
COST_USD = "headrace.cost_usd"
TOOL_KIND = "headrace.tool.kind"
SUBAGENT_ID = "headrace.subagent.id"
COMPACTION_TRIGGER = "headrace.compaction.trigger"
COMPACTION_OUTCOME = "headrace.compaction.outcome"
