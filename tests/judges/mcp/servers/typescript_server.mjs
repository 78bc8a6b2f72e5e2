// A server of the official TypeScript SDK with sessions, as its examples have them: an unknown one is answered with 404.
// Arguments: the folder of packages and the port.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [packages, port] = process.argv.slice(2);
const require = createRequire(path.join(packages, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { McpServer } = await load("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { isInitializeRequest } = await load("@modelcontextprotocol/sdk/types.js");
const { default: express } = await load("express");
const { z } = await load("zod");

const transports = new Map();

async function open() {
  const server = new McpServer({ name: "judged", version: "1" });
  const inputSchema = { text: z.string(), seconds: z.number().default(0) };
  server.registerTool("say", { description: "Say it after a while.", inputSchema }, async ({ text, seconds }) => {
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    return { content: [{ type: "text", text }] };
  });
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => transports.set(id, transport),
  });
  await server.connect(transport);
  return transport;
}

const app = express();
app.use(express.json());
app.all("/mcp", async (request, response) => {
  const known = transports.get(request.headers["mcp-session-id"]);
  if (known) return known.handleRequest(request, response, request.body);
  if (request.method === "POST" && isInitializeRequest(request.body))
    return (await open()).handleRequest(request, response, request.body);
  const error = { code: -32001, message: "Session not found" };
  return response.status(404).json({ jsonrpc: "2.0", error, id: null });
});
app.listen(Number(port), "127.0.0.1");
