// Ask an agent over gRPC, read its events as they come, attach again when the stream is cut; or cancel at the first word.
//
//   node build/main.js 127.0.0.1:7001 assistant "What is the weather in Paris?"
//   node build/main.js 127.0.0.1:7001 writer "A long story" cancel

import { setTimeout } from "node:timers/promises";

import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { type AgentDelta, AgentService } from "../stubs/headrace/v1/agent_pb";
import { Fold } from "./fold";

type Agents = Client<typeof AgentService>;

/** Reads a run to its end. */
async function ask(agents: Agents, agentKey: string, message: string, isCancelled: boolean): Promise<Fold> {
  const state = new Fold();
  let stream = agents.query({ agentKey, message });
  while (true) {
    try {
      isCancelled = await read(agents, stream, state, isCancelled);
    } catch (error) {
      if (ConnectError.from(error).code !== Code.Unavailable || !state.runId) throw error;
    }
    if (state.end) return state;
    // The stream was cut or the server restarts, and the run goes on: read on behind what was read.
    await setTimeout(1000);
    stream = agents.attach({ runId: state.runId, lastSeq: state.lastSeq });
  }
}

/** Folds a stream's events; returns whether the run is still to be cancelled. */
async function read(agents: Agents, stream: AsyncIterable<AgentDelta>, state: Fold, isCancelled: boolean) {
  for await (const event of stream) {
    state.apply(event);
    if (isCancelled && event.payload.case === "contentDelta") {
      isCancelled = false;
      await agents.cancel({ runId: state.runId });
    }
  }
  return isCancelled;
}

const [address, agentKey, message, action] = process.argv.slice(2);
const agents = createClient(AgentService, createGrpcTransport({ baseUrl: `http://${address}` }));
const state = await ask(agents, agentKey, message, action === "cancel");
console.log(`answer: ${state.answer}`);
const end = state.end?.payload;
if (end?.case === "runComplete") console.log(`end: complete, ${end.value.finishReason}`);
if (end?.case === "runCancel") console.log("end: cancelled");
if (end?.case === "runError") console.log(`end: failed, ${end.value.error?.message}`);
