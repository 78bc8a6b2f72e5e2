// The facade's routes as functions: they give `data` of the envelope or raise an ApiError with the words of the failure.

import { unauthenticated, withCredential } from "./credential.js";
import { parse } from "./json.js";

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.msg || `the server answered ${status}`);
    this.status = status;
    this.code = body?.error?.code ?? "";
    this.canRetry = body?.error?.retriable ?? status >= 500;
  }
}

/** The connection failed: what was asked may or may not have arrived. */
export class Lost extends Error {
  constructor(cause) {
    super("The server cannot be reached.", { cause });
  }
}

/** For fetch and what reads its body: both say TypeError for a broken connection. */
export function asLost(error) {
  throw error instanceof TypeError ? new Lost(error) : error;
}

/** A random UUID; crypto.randomUUID is missing on plain HTTP from another machine. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

async function answered(path, options) {
  const response = await fetch(path, { ...options, headers: withCredential(options?.headers) }).catch(asLost);
  if (response.ok) return response;
  if (response.status === 401) unauthenticated();
  const text = await response.text().catch(asLost);
  let body = null;
  try {
    body = parse(text);
  } catch {
    // A proxy between us answered; its page is not for our users.
  }
  throw new ApiError(response.status, body);
}

async function envelope(path, options) {
  const response = await answered(path, options);
  return parse(await response.text().catch(asLost));
}

async function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value);
  return envelope(`${path}?${new URLSearchParams(given)}`);
}

function json(body) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: text };
}

export const agents = async () => (await get("/api/agents")).data;
export const chats = (pageToken) => get("/api/chats", { pageSize: 30, pageToken });
export const chat = async (chatId) => (await get("/api/chat", { chatId })).data;
export const run = async (runId) => (await get("/api/run", { runId })).data;
export const viewport = async (viewportKey) => (await get("/api/viewport", { viewportKey })).data;

export const query = (body, signal) => answered("/api/query", { ...json(body), signal });
export const attach = (runId, lastSeq, signal) =>
  answered(`/api/attach?${new URLSearchParams({ runId, lastSeq })}`, { signal });

export const submit = async (body) => (await envelope("/api/submit", json({ requestId: newId(), ...body }))).data;
export const cancel = async (runId) => (await envelope("/api/cancel", json({ runId, mode: "now" }))).data;
export const steer = async (runId, message) =>
  (await envelope("/api/steer", json({ runId, message, requestId: newId() }))).data;
export const fork = async (chatId, runId) => (await envelope("/api/chat/fork", json({ chatId, runId }))).data.chatId;
export const remove = (chatId) => envelope(`/api/chat?${new URLSearchParams({ chatId })}`, { method: "DELETE" });

/** A file of a workspace, by its address. */
export const file = async (address) => (await answered(address)).blob().catch(asLost);

/** Store a file; the reference to pass in a query. */
export async function upload(chatId, file) {
  const form = new FormData();
  form.append("chatId", chatId);
  form.append("file", file, file.name);
  return (await envelope("/api/upload", { method: "POST", body: form })).data;
}
