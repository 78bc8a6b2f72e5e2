// The client of a server, over HTTP with Server-Sent Events.
//
//   const client = new Client({ url: "http://127.0.0.1:8080", token: key });
//   for await (const text of client.ask("Hello", { agentKey: "assistant" }).text()) show(text);
//
// Calls throw a HeadraceError, or a ConnectionLost where the server cannot be reached.

import type * as contract from "./contract.js";
import { ROUTES } from "./routes.js";
import type { StreamOptions } from "./reading.js";
import { RunStream } from "./run_stream.js";
import { buildPath, buildPost, createId, Transport, type Parameters, type TransportOptions } from "./transport.js";
import { followChat, watchGates, type ChatEvent } from "./watches.js";

type Operations = contract.Operations;
type Request<Name extends keyof Operations> = Operations[Name]["request"];
type Answer<Name extends keyof Operations> = Operations[Name]["response"];

export interface CallOptions {
  signal?: AbortSignal;
}

export interface ClientOptions extends TransportOptions {
  /** Holds for all streams that do not say otherwise. */
  reattachMs?: number;
  silenceMs?: number;
}

export type AskOptions = StreamOptions & Omit<contract.QueryRequest, "message" | "stream">;

export interface UploadOptions extends CallOptions {
  /** The chat; left out, a new one is made. */
  chatId?: string;
  /** A folder of its workspace. */
  folder?: string;
}

/** Calls of one server; a page or program needs one. */
export class Client {
  readonly #transport: Transport;
  readonly #defaults: StreamOptions;

  constructor({ reattachMs, silenceMs, ...options }: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.#defaults = { ...(reattachMs !== undefined && { reattachMs }), ...(silenceMs !== undefined && { silenceMs }) };
  }

  /**
   * Call an RPC by its name, as docs/reference/rpcs.md lists them; those with a stream or a file have methods.
   *
   * It is sent once. What has a `requestId` may be sent again with the same one and is done once.
   */
  async call<Name extends keyof Operations>(
    name: Name,
    request: Request<Name>,
    { signal }: CallOptions = {},
  ): Promise<Answer<Name>> {
    const [method, path] = ROUTES[name];
    const init = signal ? { signal } : {};
    return method === "POST"
      ? this.#transport.request(path, { ...buildPost(request), ...init })
      : this.#transport.request(buildPath(path, request as Parameters), { method, ...init });
  }

  /**
   * Ask an agent. The request is sent when the stream is read for the first time, and again where its answer is lost: its
   * request id makes all of them one run.
   */
  ask(message: string, options: AskOptions = {}): RunStream {
    const { signal, onConnection, reattachMs, silenceMs, ...query } = options;
    const ids = { chatId: query.chatId ?? createId(), requestId: query.requestId ?? createId() };
    const body = buildPost({ ...query, ...ids, message });
    const open = (runId: string, lastSeq: number, signal: AbortSignal) =>
      runId ? this.#attach(runId, lastSeq, signal) : this.#stream("/api/query", body, signal);
    return new RunStream(open, { ...this.#defaults, ...options });
  }

  /**
   * Read a run from its beginning, or behind the event `lastSeq` of which the caller has the state: `state` of the stream
   * has what is read by it.
   */
  attach(runId: string, { lastSeq = 0, ...options }: StreamOptions & { lastSeq?: number } = {}): RunStream {
    const open = (runId: string, lastSeq: number, signal: AbortSignal) => this.#attach(runId, lastSeq, signal);
    return new RunStream(open, { ...this.#defaults, ...options }, runId, lastSeq);
  }

  /**
   * Yield what a chat's runs did after the event with `cursor`, what they do, and each run that begins later. The stream
   * has no end: leave it, or abort `signal`. Without a cursor it begins with the chat; `getChat` returns the cursor from
   * which it continues after the history.
   */
  followChat(
    chatId: string,
    { cursor = "", ...options }: StreamOptions & { cursor?: string } = {},
  ): AsyncGenerator<ChatEvent, void, undefined> {
    const open = (cursor: string, signal: AbortSignal) =>
      this.#stream(buildPath("/api/follow", { chatId, cursor }), {}, signal);
    return followChat(open, cursor, { ...this.#defaults, ...options });
  }

  async listAgents(options?: CallOptions): Promise<contract.Agent[]> {
    return (await this.call("ListAgents", {}, options)).data;
  }

  /** List the runs of a chat: a page of `data`, and perhaps `nextPageToken`. */
  listRuns(filters: Request<"ListRuns">, options?: CallOptions): Promise<Answer<"ListRuns">> {
    return this.call("ListRuns", filters, options);
  }

  async getRun(runId: string, options?: CallOptions): Promise<Answer<"GetRun">["data"]> {
    return (await this.call("GetRun", { runId }, options)).data;
  }

  /** Cancel a run; what it has said and done so far stays. */
  async cancelRun(runId: string, request: Omit<contract.CancelRequest, "runId"> = {}, options?: CallOptions) {
    return (await this.call("Cancel", { ...request, runId }, options)).data;
  }

  /** Send a run on its way a message of its user. */
  async steerRun(runId: string, message: string, request: Partial<contract.SteerRequest> = {}, options?: CallOptions) {
    return (await this.call("Steer", { requestId: createId(), ...request, runId, message }, options)).data;
  }

  /** List the gates that wait for the caller: a page of `data`, and perhaps `nextPageToken`. */
  listGates(filters: Request<"ListGates"> = {}, options?: CallOptions): Promise<Answer<"ListGates">> {
    return this.call("ListGates", filters, options);
  }

  /** Return a gate with its arguments and steps. */
  async getGate(runId: string, gateId: string, options?: CallOptions): Promise<contract.Gate> {
    return (await this.call("GetGate", { runId, gateId }, options)).data;
  }

  /** Answer a gate: `{runId, gateId, payload}`; the payload of an approval is `{"decision": "approve" | "edit" | "reject"}`. */
  async answerGate(request: contract.AnswerGateRequest, options?: CallOptions) {
    return (await this.call("AnswerGate", { requestId: createId(), ...request }, options)).data;
  }

  /** Yield all gates that wait, at first and whenever one has changed; it goes on by itself when it is cut. */
  watchGates(filters: contract.WatchGatesRequest = {}, options: StreamOptions = {}): AsyncGenerator<contract.Gate[]> {
    const path = buildPath("/api/gates/watch", { ...filters });
    return watchGates((signal) => this.#stream(path, {}, signal), { ...this.#defaults, ...options });
  }

  listChats(filters: Request<"ListChats"> = {}, options?: CallOptions): Promise<Answer<"ListChats">> {
    return this.call("ListChats", filters, options);
  }

  /** Return a chat with its history, whose `events` a Fold takes. */
  async getChat(request: Request<"GetChat">, options?: CallOptions): Promise<Answer<"GetChat">["data"]> {
    return (await this.call("GetChat", request, options)).data;
  }

  /** Copy a chat as it was behind a run; return the new chat's id. */
  async forkChat(request: contract.ForkChatRequest, options?: CallOptions): Promise<string> {
    return (await this.call("ForkChat", request, options)).data.chatId;
  }

  /** Store a file; `reference` and `chatId` are for a query that asks about it. */
  async upload(
    name: string,
    content: Blob | Uint8Array | string,
    { chatId, folder, signal }: UploadOptions = {},
  ): Promise<{ chatId: string; reference: contract.Reference }> {
    const form = new FormData();
    if (chatId) form.append("chatId", chatId);
    if (folder) form.append("folder", folder);
    form.append("requestId", createId());
    // Uint8Array has no parameter before TypeScript 5.7, so the declaration must not name one.
    form.append("file", content instanceof Blob ? content : new Blob([content as BlobPart]), name);
    const init = { method: "POST", body: form, ...(signal && { signal }) };
    const answer = await this.#transport.request("/api/upload", init);
    return { chatId: answer.chatId, reference: answer.data };
  }

  /** Return the response with a file, by the `url` of an artifact, a reference or a message. */
  fetchFile(url: string, { signal }: CallOptions = {}): Promise<Response> {
    return this.#transport.send(url, signal ? { signal } : {});
  }

  #attach(runId: string, lastSeq: number, signal: AbortSignal): Promise<Response> {
    return this.#stream(buildPath("/api/attach", { runId, lastSeq }), {}, signal);
  }

  #stream(path: string, init: RequestInit, signal: AbortSignal): Promise<Response> {
    return this.#transport.send(path, { ...init, signal });
  }
}
