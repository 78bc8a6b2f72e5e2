// Tasks of MCP: the extension by @modelcontextprotocol/ext-tasks, and those of 2025-11-25 by the first SDK.
//
// Arguments: the facade's URL and the versions to try: 1 (2025-11-25) or 2 (the extension).

const [base, generation] = process.argv.slice(2);
const url = new URL(`${base}/mcp`);

/** Answers approvals and forms. */
function decide(params) {
  const isApproval = "decision" in params.requestedSchema.properties;
  return { action: "accept", content: isApproval ? { decision: "approve" } : { choice: "yes" } };
}

const capabilities = { elicitation: { form: {} } };
const clientInfo = { name: "tests", version: "1" };
const tasks = await (generation === "2" ? openExtension() : openCore());

/** The extension's own driver. What it has no transport for, a host gives it: one POST a request. */
async function openExtension() {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { createTaskSessionFromClient, resultFromTaskOutcome } = await import("@modelcontextprotocol/ext-tasks/client");
  const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(url));
  const protocolVersion = client.getNegotiatedProtocolVersion();
  let id = 0;
  const rawDispatch = async (request, { signal } = {}) => {
    const { name, taskId } = request.params;
    const headers = {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": protocolVersion,
      "Mcp-Method": request.method,
      "Mcp-Name": taskId ?? name,
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id: ++id, ...request });
    const response = await (await fetch(url, { method: "POST", headers, body, signal })).json();
    return response.error ? { kind: "error", error: response.error } : { kind: "result", result: response.result };
  };
  const session = createTaskSessionFromClient(client, {
    endpointId: "tests",
    rawDispatch,
    v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: capabilities },
    onInputRequest: ({ params }) => decide(params),
  });
  return {
    async call(name, message, statuses = []) {
      const execution = await session.callTool(name, { message });
      const note = ({ task }) => task && statuses.at(-1) !== task.status && statuses.push(task.status);
      const { outcome } = await execution.settle({ onEvent: note });
      return [resultFromTaskOutcome(outcome), execution.handle.taskId];
    },
    async again(taskId) {
      return resultFromTaskOutcome(await session.task(taskId).result());
    },
    list: async () => session.listTasks().then(() => true, () => false),
    async cancelled(name, message) {
      const execution = await session.callTool(name, { message });
      await execution.cancel();
      const task = session.task(execution.handle.taskId);
      for (;;) {
        const { status } = await task.snapshot();
        if (status !== "working" && status !== "input_required") return status;
      }
    },
    refused: () => session.task("11111111-1111-4111-8111-111111111111").snapshot().catch(({ code, cause }) => code ?? cause?.code),
  };
}

async function openCore() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { CallToolResultSchema, ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  const client = new Client(clientInfo, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => decide(params));
  await client.connect(new StreamableHTTPClientTransport(url));
  await client.listTools();
  const api = client.experimental.tasks;
  return {
    async call(name, message, statuses = []) {
      let taskId;
      for await (const event of api.callToolStream({ name, arguments: { message } }, CallToolResultSchema, { task: {} })) {
        if (event.type === "taskCreated") taskId = event.task.taskId;
        if (event.type === "error") throw event.error;
        if (event.type === "result") return [event.result, taskId];
        if (statuses.at(-1) !== event.task.status) statuses.push(event.task.status);
      }
    },
    again: (taskId) => api.getTaskResult(taskId, CallToolResultSchema),
    list: async (taskId) => (await api.listTasks()).tasks.some((task) => task.taskId === taskId),
    async cancelled(name, message) {
      for await (const event of api.callToolStream({ name, arguments: { message } }, CallToolResultSchema, { task: {} })) {
        if (event.type === "taskCreated") return (await api.cancelTask(event.task.taskId)).status;
      }
    },
    refused: () => api.getTask("11111111-1111-4111-8111-111111111111").catch((error) => error.code),
  };
}

const statuses = [];
const [weather, first] = await tasks.call("assistant", "What is the weather in Paris today?");
const [booked] = await tasks.call("booker", "Book a flight to Rome", statuses);
const [published] = await tasks.call("publisher", "Publish a note");
const again = await tasks.again(first);

console.log(
  JSON.stringify({
    weather: weather.structuredContent.finishReason,
    booked: booked.structuredContent.answer,
    published: published.content[0].text,
    asked: statuses.includes("input_required"),
    again: again.structuredContent.finishReason,
    listed: await tasks.list(first),
    cancelled: await tasks.cancelled("booker", "Book a flight to Rome"),
    refused: await tasks.refused(),
  }),
);
process.exit(0);
