// @ag-ui/client, whose verifier ends a run at the first event that is out of order.
//
// Arguments: the facade's URL, the file of resumingFetch, and what to do; prints one line of JSON.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { randomUUID } from "node:crypto";

import { HttpAgent } from "@ag-ui/client";

const [base, resumingFile, exercise] = process.argv.slice(2);
const { resumingFetch } = await import(resumingFile);

const user = (content) => ({ id: randomUUID(), role: "user", content });
const texts = (agent) => agent.messages.filter((one) => one.role === "assistant" && one.content).map((one) => one.content);

function open(name, content, options = {}) {
  return new HttpAgent({ url: `${base}/agui/${name}`, initialMessages: [user(content)], ...options });
}

/** Runs the agent; returns the names of its events, without repetitions side by side. */
async function run(agent, parameters = {}, onEvent = () => {}) {
  const kinds = [];
  await agent.runAgent(parameters, {
    onEvent: ({ event }) => {
      if (event.type !== kinds.at(-1)) kinds.push(event.type);
      onEvent(event);
    },
  });
  return kinds;
}

const locate = {
  name: "locate",
  description: "Where the user is",
  parameters: { type: "object", properties: { exact: { type: "boolean" } } },
};

const exercises = {
  async text() {
    const agent = open("words", "Count.");
    let pieces = 0;
    await run(agent, {}, (event) => (pieces += event.type === "TEXT_MESSAGE_CONTENT"));
    agent.addMessage(user("Count."));
    await run(agent);
    return [texts(agent), pieces];
  },

  async tools() {
    const agent = open("tools", "What time?");
    await run(agent);
    return [texts(agent), agent.messages.map((message) => message.role)];
  },

  async function() {
    const agent = open("words", "Where am I?");
    let pending = [];
    const note = { onRunFinishedEvent: ({ pendingToolCallIds }) => void (pending = pendingToolCallIds) };
    await agent.runAgent({ tools: [locate] }, note);
    const call = agent.messages.flatMap((message) => message.toolCalls ?? []).at(-1);
    assert.deepEqual(pending, [call.id]);
    agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content: '{"city":"Lyon"}' });
    await run(agent, { tools: [locate] });
    return [texts(agent), call.function];
  },

  /** A file with the message, which is one of the chat then; and one by its address, which is not taken. */
  async media() {
    const part = (source) => ({ type: "document", source: { mimeType: "text/csv", ...source }, metadata: { filename: "mills.csv" } });
    const text = { type: "text", text: "Count." };
    const agent = open("words", [text, part({ type: "data", value: btoa("mill,year") })]);
    await run(agent);
    const path = `${base}/api/resource?${new URLSearchParams({ chatId: agent.threadId, path: "uploads/mills.csv" })}`;
    const refused = open("words", [text, part({ type: "url", value: "https://example.org/mills.csv" })]);
    const field = await run(refused).catch((error) => error.payload.error.details.field);
    return [texts(agent), await (await fetch(path)).text(), field];
  },

  async approval() {
    const outcomes = [];
    for (const payload of [{ decision: "approve" }, { approved: false }]) {
      const agent = open("publisher", "Publish a note");
      await run(agent);
      const [interrupt] = agent.pendingInterrupts;
      const kinds = await run(agent, { resume: [{ interruptId: interrupt.id, status: "resolved", payload }] });
      assert.deepEqual(agent.pendingInterrupts, []);
      assert.deepEqual([kinds[0], kinds.at(-1)], ["RUN_STARTED", "RUN_FINISHED"]);
      const calls = agent.messages.flatMap((message) => message.toolCalls ?? []).map((call) => call.id);
      const result = agent.messages.find((message) => message.role === "tool" && message.toolCallId === calls[0]);
      outcomes.push([interrupt.reason, interrupt.metadata.headrace.toolName, calls.includes(interrupt.toolCallId), result.content]);
    }
    return outcomes;
  },

  async form() {
    const agent = open("booker", "Book a flight to Rome");
    await run(agent);
    const [interrupt] = agent.pendingInterrupts;
    await run(agent, { resume: [{ interruptId: interrupt.id, status: "resolved", payload: { choice: "yes" } }] });
    return [interrupt.responseSchema.required, texts(agent).length];
  },

  async plan() {
    const agent = open("trip_planner", "Plan a weekend in Rome");
    const kinds = await run(agent);
    const [plan] = agent.messages.filter((message) => message.role === "activity");
    const steps = kinds.filter((kind) => kind === "STEP_STARTED").length;
    return [plan.activityType, plan.content.tasks.map((task) => task.status), steps, texts(agent).length];
  },

  async subagents() {
    const agent = open("research_team", "Compare water mills and windmills");
    const finished = [];
    await run(agent, {}, (event) => event.type === "SUBAGENT_FINISHED" && finished.push(event.subagentRunId));
    const owners = new Set(agent.messages.map((message) => message.subagentRunId).filter(Boolean));
    return [finished.length, owners.size, agent.messages.filter((one) => one.role === "assistant" && one.content && !one.subagentRunId).length];
  },

  /** Cuts the connection behind every n-th chunk, for several n: what comes out is always the same. */
  async cuts() {
    const results = [];
    for (const [name, content] of [["words", "Count."], ["tools", "What time?"]]) {
      for (const every of [1, 2, 3, 5]) {
        const cutting = resumingFetch({ open: (url, init) => cutAfter(every, url, init), pauseMs: 20, attempts: 400 });
        const agent = open(name, content, { fetch: cutting });
        await run(agent);
        results.push(texts(agent));
      }
    }
    return results;
  },

  async fifty() {
    const agents = Array.from({ length: 50 }, () => open("words", "Count."));
    await Promise.all(agents.map((agent) => run(agent)));
    return [...new Set(agents.map((agent) => texts(agent).join()))];
  },

  async errors() {
    const said = [];
    for (const name of ["nobody", "schemas"]) {
      await run(open(name, "Count.")).catch((error) => said.push([error.status ?? 0, error.payload?.error?.code ?? error.message]));
    }
    const failing = open("words", "Fail.");
    await run(failing, {}, (event) => event.type === "RUN_ERROR" && said.push(event.code)).catch(() => {});
    return said;
  },

  /** Fifty runs that read on when their service is killed; says when all have their first words. */
  async reconnect() {
    const begun = new Set();
    const resuming = resumingFetch({ pauseMs: 200, attempts: 400 });
    const agents = Array.from({ length: 50 }, () => open("react", "go", { fetch: resuming }));
    const ends = await Promise.all(
      agents.map(async (agent) => {
        const kinds = await run(agent, {}, (event) => {
          if (event.type !== "TEXT_MESSAGE_CONTENT" || begun.has(agent)) return;
          begun.add(agent);
          if (begun.size === agents.length) console.log("begun");
        });
        return kinds.at(-1);
      }),
    );
    return { ends: [...new Set(ends)], texts: [...new Set(agents.map((agent) => texts(agent).join()))] };
  },

  /** Asks, says that it waits, and answers when it is told to. */
  async answer() {
    const agent = open("asker", "go");
    await run(agent);
    console.log("begun");
    await createInterface({ input: process.stdin })[Symbol.asyncIterator]().next();
    await resumeInterrupts(agent, { answer: "the old" });
    return texts(agent);
  },
};

function resumeInterrupts(agent, payload) {
  return run(agent, { resume: agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload })) });
}

async function cutAfter(chunks, url, init) {
  const response = await fetch(url, init);
  if (!response.ok) return response;
  async function* some() {
    let left = chunks;
    for await (const chunk of response.body) {
      yield chunk;
      if (--left === 0) throw new Error("cut");
    }
  }
  return new Response(ReadableStream.from(some()), response);
}

console.log(JSON.stringify(await exercises[exercise]()));
process.exit(0);
