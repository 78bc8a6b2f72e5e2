// Calls the facade's routes: returns `data` of the envelope or throws an ApiError with the failure's text.

import { addCredential, reportUnauthenticated } from "./credential.js";
import { parseJson } from "./json.js";

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.msg || `the server answered ${status}`);
    this.status = status;
    this.code = body?.error?.code ?? "";
    this.details = body?.error?.details ?? {};
    this.canRetry = body?.error?.retriable ?? status >= 500;
  }
}

/** The connection failed; the request may or may not have arrived. */
export class ConnectionLost extends Error {
  constructor(cause) {
    super("The server cannot be reached.", { cause });
  }
}

/** Throw ConnectionLost for the TypeError that fetch and body readers raise when a connection breaks. */
export function throwNetworkError(error) {
  throw error instanceof TypeError ? new ConnectionLost(error) : error;
}

/** Return a random UUID; crypto.randomUUID is missing on plain HTTP from another machine. */
export function createId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

async function sendRequest(path, options) {
  const response = await fetch(path, { ...options, headers: addCredential(options?.headers) }).catch(throwNetworkError);
  if (response.ok) return response;
  if (response.status === 401) reportUnauthenticated();
  const text = await response.text().catch(throwNetworkError);
  let body = null;
  try {
    body = parseJson(text);
  } catch {
    // A proxy answered instead of the facade; its page is not for our users.
  }
  throw new ApiError(response.status, body);
}

/** Return the whole envelope, for routes that answer more than `data`. */
export async function fetchEnvelope(path, options) {
  const response = await sendRequest(path, options);
  return parseJson(await response.text().catch(throwNetworkError));
}

export async function getEnvelope(path, parameters = {}) {
  const entries = Object.entries(parameters).filter(([, value]) => value);
  return fetchEnvelope(`${path}?${new URLSearchParams(entries)}`);
}

export function buildPost(body) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: text };
}

export const getData = async (path, parameters) => (await getEnvelope(path, parameters)).data;
export const postData = async (path, body) => (await fetchEnvelope(path, buildPost(body))).data;
export const deleteData = (path, parameters) =>
  fetchEnvelope(`${path}?${new URLSearchParams(parameters)}`, { method: "DELETE" });

let identity;
/** Return who the user is, and the scopes of the credential; asked for until it is answered once. */
export function getIdentity() {
  identity ??= getData("/api/identity").catch((error) => {
    identity = undefined;
    throw error;
  });
  return identity;
}

export const listAgents = async () => (await getEnvelope("/api/agents")).data;
export const listChats = (pageToken) => getEnvelope("/api/chats", { pageSize: 30, pageToken });
/** List the chats of others that the user may read or take part in. */
export const listSharedChats = async () => (await getEnvelope("/api/chats", { pageSize: 30, scope: "shared" })).data;
/** Search titles and texts of chats; hits are the best first, and several may be of one chat. */
export const searchChats = async (query) =>
  (await getEnvelope("/api/search", { query, scope: "chats", limit: 50 })).data;
export const renameChat = (chatId, title) =>
  fetchEnvelope("/api/chat", buildPost({ chatId, title, requestId: createId() }));
export const getChat = async (chatId, parameters) => (await getEnvelope("/api/chat", { chatId, ...parameters })).data;
/** Say with whom a chat is shared: names that may read, and names that may take part. */
export const shareChat = (chatId, { sharedWith, participants }) =>
  fetchEnvelope("/api/chat/share", buildPost({ chatId, sharedWith, participants, requestId: createId() }));
export const getRun = async (runId) => (await getEnvelope("/api/run", { runId })).data;
export const getContext = async (parameters) => (await getEnvelope("/api/context", parameters)).data;
export const getViewport = async (viewportKey) => (await getEnvelope("/api/viewport", { viewportKey })).data;

export const startQuery = (body, signal) => sendRequest("/api/query", { ...buildPost(body), signal });
export const attachToRun = (runId, lastSeq, signal) =>
  sendRequest(`/api/attach?${new URLSearchParams({ runId, lastSeq })}`, { signal });

export const submitPayload = async (body) =>
  (await fetchEnvelope("/api/submit", buildPost({ requestId: createId(), ...body }))).data;
export const claimGate = (body) => fetchEnvelope("/api/gate/claim", buildPost(body));
export const releaseGate = (body) => fetchEnvelope("/api/gate/release", buildPost(body));
export const cancelRun = async (runId) => (await fetchEnvelope("/api/cancel", buildPost({ runId, mode: "now" }))).data;
export const steerRun = async (runId, message) =>
  (await fetchEnvelope("/api/steer", buildPost({ runId, message, requestId: createId() }))).data;
export const forkChat = async (chatId, runId) =>
  (await fetchEnvelope("/api/chat/fork", buildPost({ chatId, runId }))).data.chatId;

/** List the places before a run's question (kind query) or its steps (kind step), the latest first. */
export const listCheckpoints = async (chatId, runId, kind) =>
  (await getEnvelope("/api/chat/checkpoints", { chatId, runId, kind })).data;
/** Find the checkpoint before a run's question; undefined when the run is no part of the chat any more. */
export const findCheckpoint = async (chatId, runId) => (await listCheckpoints(chatId, runId, "query"))[0];
export const revertChat = (chatId, { checkpointId, n }) =>
  fetchEnvelope("/api/chat/revert", buildPost({ chatId, checkpointId, n, requestId: createId() }));
export const pinMessage = (chatId, n, remove = false) =>
  fetchEnvelope("/api/chat/pin", buildPost({ chatId, n, remove, requestId: createId() }));
export const listPins = async (chatId) => (await getEnvelope("/api/chat/pins", { chatId })).data;
export const getSummary = async (chatId) => (await getEnvelope("/api/chat/summary", { chatId })).data;
export const editSummary = (chatId, n, text) =>
  fetchEnvelope("/api/chat/summary", buildPost({ chatId, n, text, requestId: createId() }));
export const getState = async (chatId) => (await getEnvelope("/api/chat/state", { chatId })).data;
export const updateState = async (chatId, expectedVersion, state) =>
  (await fetchEnvelope("/api/chat/state", buildPost({ chatId, expectedVersion, state }))).data.version;
export const deleteChat = (chatId) => deleteData("/api/chat", { chatId });

export const listFacts = async (pageToken) => (await getEnvelope("/api/facts", { pageSize: 50, pageToken })).data;
export const exportFacts = async (pageToken) => (await getEnvelope("/api/facts/export", { pageToken })).data;
export const updateFact = async (factId, text) =>
  (await fetchEnvelope("/api/fact", buildPost({ factId, text }))).data.fact;
export const deleteFact = (factId) => deleteData("/api/fact", { factId });

/** List gates that wait: an envelope with `data` and perhaps nextPageToken. */
export const listGates = (parameters) => getEnvelope("/api/gates", parameters);
/** Open the stream of gates that wait, and of their changes. */
export const watchGates = (parameters, signal) => {
  const entries = Object.entries(parameters).filter(([, value]) => value);
  return sendRequest(`/api/gates/watch?${new URLSearchParams(entries)}`, { signal });
};
export const getGate = async (runId, gateId) => (await getEnvelope("/api/gate", { runId, gateId })).data;
export const answerGate = async (body) =>
  (await fetchEnvelope("/api/gate/answer", buildPost({ requestId: createId(), ...body }))).data;
/** Ask the requester about a gate, or reply as the requester; returns {status}. */
export const askBack = async (body) =>
  (await fetchEnvelope("/api/gate/ask", buildPost({ requestId: createId(), ...body }))).data;

/** List the approvals in force that hold for later calls. */
export const listGrants = async (parameters) => (await getEnvelope("/api/grants", parameters)).data;
export const revokeGrant = (body) => fetchEnvelope("/api/grant/revoke", buildPost(body));

/** Sum up what was spent; `groupBy` is a list. */
export const getUsage = async ({ groupBy, ...parameters }) => {
  const query = new URLSearchParams([...Object.entries(parameters), ...groupBy.map((group) => ["groupBy", group])]);
  return (await fetchEnvelope(`/api/usage?${query}`)).data;
};

/** Fetch a workspace file by its address. */
export const fetchFile = async (address) => (await sendRequest(address)).blob().catch(throwNetworkError);

/** Store a file and return the reference to pass in a query. */
export async function uploadFile(chatId, file) {
  const form = new FormData();
  form.append("chatId", chatId);
  form.append("file", file, file.name);
  return (await fetchEnvelope("/api/upload", { method: "POST", body: form })).data;
}
