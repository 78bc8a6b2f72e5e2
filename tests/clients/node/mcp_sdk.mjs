// The official TypeScript SDK of MCP, as a client that can ask its user.
//
// Arguments: the facade's URL and the versions of the SDK to try: 1 (handshake) or 2.

import assert from "node:assert/strict";

const [base, generation] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, elicitation } = await load();

async function load() {
  if (generation === "2") {
    const sdk = await import("@modelcontextprotocol/client");
    return { ...sdk, elicitation: "elicitation/create" };
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  return { Client, StreamableHTTPClientTransport, elicitation: ElicitRequestSchema };
}

const options = { capabilities: { elicitation: { form: {} } } };
if (generation === "2") options.versionNegotiation = { mode: "auto" };
const client = new Client({ name: "tests", version: "1" }, options);
const asked = [];
client.setRequestHandler(elicitation, async ({ params }) => {
  asked.push(Object.keys(params.requestedSchema.properties));
  const isApproval = "decision" in params.requestedSchema.properties;
  return { action: "accept", content: isApproval ? { decision: "approve" } : { choice: "yes" } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(`${base}/mcp`)));

const { tools } = await client.listTools();
const progress = [];
const call = async (name, message) => {
  const onprogress = (one) => progress.push(one.message);
  const params = { name, arguments: { message } };
  return generation === "2" ? client.callTool(params, { onprogress }) : client.callTool(params, undefined, { onprogress });
};
const weather = await call("assistant", "What is the weather in Paris today?");
assert.equal(weather.structuredContent.answer, weather.content[0].text);
const published = await call("publisher", "Publish a note");
const booked = await call("booker", "Book a flight to Rome");
const { prompts } = await client.listPrompts();
const prompt = await client.getPrompt({ name: prompts[0].name });
const { resources } = await client.listResources();
const chat = await client.readResource({ uri: resources[0].uri });
const refused = await client.callTool({ name: "nobody", arguments: { message: "x" } }).catch((error) => error.code);

console.log(
  JSON.stringify({
    version: client.getNegotiatedProtocolVersion?.() ?? null,
    tools: tools.some((tool) => tool.name === "assistant"),
    weather: weather.structuredContent.finishReason,
    published: published.content[0].text,
    booked: booked.structuredContent.answer,
    asked,
    progress: progress.includes("calls mock_city_weather"),
    prompt: prompt.messages[0].content.text,
    chat: JSON.parse(chat.contents[0].text).chatId === resources[0].uri.split("/").at(-1),
    refused,
  }),
);
await client.close();
process.exit(0);
