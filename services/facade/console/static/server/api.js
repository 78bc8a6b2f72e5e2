// Calls the facade's routes by the package @headrace/client: returns `data` of the envelope, or throws the package's errors.

import { ConnectionLost, HeadraceError, throwNetworkError } from "../client/errors.js";
import { Transport, buildPath, buildPost, createId } from "../client/transport.js";
import { getCredential, renewCredential, reportUnauthenticated } from "./credential.js";

export { ConnectionLost, HeadraceError, createId };

const transport = new Transport({ token: getCredential, fetch: fetchAndReport });

async function fetchAndReport(path, init) {
  const response = await fetch(path, init);
  if (response.status !== 401) return response;
  const answer = await response.clone().json().catch(() => null); // a proxy's page is not JSON
  if (await renewCredential(answer?.error?.code)) return fetch(path, init);
  reportUnauthenticated(answer?.msg ?? response.statusText);
  return response;
}

/** Return the whole envelope, for routes that return more than `data`. */
export const fetchEnvelope = (path, init) => transport.request(path, init);
export const getEnvelope = (path, parameters) => fetchEnvelope(buildGet(path, parameters));

/** Return an address with its parameters, without the empty ones. */
function buildGet(path, parameters = {}) {
  return buildPath(path, Object.fromEntries(Object.entries(parameters).filter(([, value]) => value)));
}

export const getData = async (path, parameters) => (await getEnvelope(path, parameters)).data;
export const postData = async (path, body) => (await fetchEnvelope(path, buildPost(body))).data;
/** Call a route with its values as parameters, or as the body of a post; return the whole envelope. */
export const callRoute = (verb, path, values) =>
  verb === "POST" ? fetchEnvelope(path, buildPost(values)) : fetchEnvelope(buildGet(path, values), { method: verb });
export const deleteData = (path, parameters) => fetchEnvelope(buildPath(path, parameters), { method: "DELETE" });

let identity;
/** Return the user and the credential's scopes, from the first successful answer. */
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
/** Return a chat, with the events of all its pages. */
export async function getChat(chatId, parameters) {
  const chat = (await getEnvelope("/api/chat", { chatId, ...parameters })).data;
  const pages = [chat.events ?? []];
  for (let pageToken = chat.earlierPageToken; pageToken;) {
    const earlier = (await getEnvelope("/api/chat", { chatId, ...parameters, pageToken })).data;
    pages.unshift(earlier.events);
    pageToken = earlier.earlierPageToken;
  }
  return { ...chat, events: pages.flat() };
}
/** Return the messages of a run's log, with the usage and the times of each. */
export const getRawMessages = async (chatId, runId) =>
  (await getEnvelope("/api/chat", { chatId, runId, includeRawMessages: true })).data.rawMessages ?? [];
/** Set with whom a chat is shared: names that may read, and names that may take part. */
export const shareChat = (chatId, { sharedWith, participants }) =>
  fetchEnvelope("/api/chat/share", buildPost({ chatId, sharedWith, participants, requestId: createId() }));
export const getRun = async (runId) => (await getEnvelope("/api/run", { runId })).data;
export const getContext = async (parameters) => (await getEnvelope("/api/context", parameters)).data;
export const getViewport = async (viewportKey) => (await getEnvelope("/api/viewport", { viewportKey })).data;

export const startQuery = (body, signal) => transport.send("/api/query", { ...buildPost(body), signal });
export const attachToRun = (runId, lastSeq, signal) =>
  transport.send(buildPath("/api/attach", { runId, lastSeq }), { signal });

export const followChat = (chatId, cursor, signal) =>
  transport.send(buildGet("/api/follow", { chatId, cursor }), { signal });

export const submitPayload = async (body) =>
  (await fetchEnvelope("/api/submit", buildPost({ requestId: createId(), ...body }))).data;
export const claimGate = (body) => fetchEnvelope("/api/gate/claim", buildPost(body));
export const releaseGate = (body) => fetchEnvelope("/api/gate/release", buildPost(body));
export const cancelRun = async (runId) => (await fetchEnvelope("/api/cancel", buildPost({ runId, mode: "now" }))).data;
export const steerRun = async (runId, message) =>
  (await fetchEnvelope("/api/steer", buildPost({ runId, message, requestId: createId() }))).data;
export const forkChat = async (chatId, runId) =>
  (await fetchEnvelope("/api/chat/fork", buildPost({ chatId, runId, requestId: createId() }))).data.chatId;

/** List the places before a run's question (kind query) or its steps (kind step), the latest first. */
export const listCheckpoints = async (chatId, runId, kind) =>
  (await getEnvelope("/api/chat/checkpoints", { chatId, runId, kind })).data;
/** Find the checkpoint before a run's question; undefined when the run is no longer part of the chat. */
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

/** List open gates: an envelope with `data`, and nextPageToken if there are more. */
export const listGates = (parameters) => getEnvelope("/api/gates", parameters);
/** Open the stream of open gates and their changes. */
export const watchGates = (parameters, signal) =>
  transport.send(buildGet("/api/gates/watch", parameters), { signal });
export const getGate = async (runId, gateId) => (await getEnvelope("/api/gate", { runId, gateId })).data;
export const answerGate = async (body) =>
  (await fetchEnvelope("/api/gate/answer", buildPost({ requestId: createId(), ...body }))).data;
/** Ask the requester about a gate, or reply as the requester; returns {status}. */
export const askBack = async (body) =>
  (await fetchEnvelope("/api/gate/ask", buildPost({ requestId: createId(), ...body }))).data;

export const completeAuthorization = ({ state, code, issuer, error }) =>
  postData("/api/mcp/authorization", {
    state,
    ...(code && { code }),
    ...(issuer && { issuer }),
    ...(error && { error }),
  });

/** Return the sums of usage; `groupBy` is a list. */
export const getUsage = async (parameters) => (await fetchEnvelope(buildPath("/api/usage", parameters))).data;

/** Fetch a workspace file by its address. */
export const fetchFile = async (address) => (await transport.send(address)).blob().catch(throwNetworkError);

/** Fetch the archive of a user's data; empty: the caller's. */
export const exportData = (user) => fetchFile(buildGet("/api/data/export", { user }));

/** Store a file and return the reference to pass in a query. */
export async function uploadFile(chatId, file) {
  const form = new FormData();
  form.append("chatId", chatId);
  form.append("file", file, file.name);
  return (await fetchEnvelope("/api/upload", { method: "POST", body: form })).data;
}
