// Compiled, not run: what a program in TypeScript writes, with the types that it is told.

import { Client, Fold, HeadraceError, type AgentEvent, type Gate, type Reference } from "@headrace/client";

const client = new Client({ url: "https://agents.example.com", token: async () => "key" });

export async function read(reference: Reference, signal: AbortSignal): Promise<string> {
  const run = client.ask("Hello", { agentKey: "assistant", references: [reference], signal });
  for await (const event of run) {
    if (event.type === "content.delta") event.delta.toUpperCase();
    // @ts-expect-error: an event of another type has no delta
    if (event.type === "run.start") event.delta;
  }
  return run.state.answer;
}

export async function answer(gate: Gate): Promise<string> {
  // @ts-expect-error: the payload is missing
  await client.answerGate({ runId: gate.runId, gateId: gate.gateId });
  const { status } = await client.answerGate({ runId: gate.runId, gateId: gate.gateId, payload: { decision: "approve" } });
  return status;
}

export async function call(): Promise<number> {
  // @ts-expect-error: there is no such call
  await client.call("MakeCoffee", {});
  const usage = await client.call("GetUsage", { groupBy: ["day"] });
  return usage.data.rows.length;
}

export const fold = (events: AgentEvent[]): string => {
  const state = new Fold();
  for (const event of events) state.apply(event);
  return state.answer;
};

export const describe = (error: unknown): string => (error instanceof HeadraceError ? (error.field ?? error.reason) : "");
