// What the tests do with @headrace/client, the same in Node and in a page.

import { Client, ConnectionLost, Fold, HeadraceError, TERMINAL } from "@headrace/client";

const LOCATE = { name: "locate", description: "Where the user is", parameters: { type: "object", properties: {} } };

/** Returns what a run has come to. */
const tell = (run, more = {}) => ({ runId: run.runId, state: run.state.toState(), ...more });

const count = (events, type) => events.filter((event) => event.type === type).length;

/** Counts the bytes that a client takes off its connections. */
function createMeter() {
  const meter = {
    bytes: 0,
    async fetch(url, init) {
      const response = await fetch(url, init);
      const counting = new TransformStream({
        transform(chunk, controller) {
          meter.bytes += chunk.length;
          controller.enqueue(chunk);
        },
      });
      return new Response(response.body.pipeThrough(counting), response);
    },
  };
  return meter;
}

/** Waits until a run that nobody reads is over. */
async function waitForEnd(client, runId) {
  while ((await client.getRun(runId)).state !== "completed") await new Promise((done) => setTimeout(done, 100));
}

export const exercises = {
  async many(url) {
    const run = new Client({ url }).ask("Many.", { agentKey: "react" });
    const events = [];
    for await (const event of run) events.push(event);
    return tell(run, { deltas: count(events, "content.delta"), types: [...new Set(events.map(({ type }) => type))] });
  },

  /** Reads ten events, nothing until the run has ended, and then the rest. */
  async slow(url) {
    const meter = createMeter();
    const run = new Client({ url, fetch: meter.fetch }).ask("Many.", { agentKey: "react" });
    const events = [];
    for await (const event of run) {
      events.push(event);
      if (events.length === 10) {
        await waitForEnd(new Client({ url }), run.runId);
        events.bytes = meter.bytes;
      }
    }
    return tell(run, { taken: events.bytes, whole: meter.bytes });
  },

  /** Gives `pause` a chance to break the connection while the run waits, and answers when it is back. */
  async broken(url, pause, onLost) {
    const connections = [];
    const client = new Client({ url, silenceMs: 3000 });
    const onConnection = (isConnected) => {
      connections.push(isConnected);
      if (isConnected) answer(client, run);
      else onLost?.();
    };
    const run = client.ask("Where am I?", { agentKey: "react", clientTools: [LOCATE], onConnection });
    const words = [];
    for await (const event of run) {
      if (event.type === "content.delta") words.push(event.delta);
      if (event.type === "tool.end") await pause(run.runId);
    }
    return tell(run, { connections, words: words.join("") });
  },

  /** What a page does that was loaded again: it has the run's id and nothing else. */
  async attach(url, runId) {
    const client = new Client({ url });
    const run = client.attach(runId);
    for await (const event of run) if (/^tool\.(end|snapshot)$/.test(event.type)) await answer(client, run);
    return tell(run);
  },

  /** Follows a chat from its history while others ask in it; `pause` may break the connection between two questions. */
  async follow(url, pause) {
    const client = new Client({ url });
    const { chatId } = await client.ask("Count.", { agentKey: "react" }).finish();
    const options = { cursor: (await client.getChat({ chatId })).cursor };
    const [runs, events] = [new Map(), []];
    const following = (async () => {
      for await (const { runId, cursor, delta } of client.followChat(chatId, options)) {
        if (!runs.has(runId)) runs.set(runId, new Fold());
        runs.get(runId).apply(delta);
        events.push([runId, delta.seq, cursor]);
        if (TERMINAL.has(delta.type) && runs.size === 2) return;
      }
    })();
    const asked = [await new Client({ url }).ask("Count.", { agentKey: "react", chatId }).finish()];
    await pause(asked[0].runId);
    asked.push(await new Client({ url }).ask("Where was I?", { agentKey: "react", chatId }).finish());
    await following;
    const tellAll = (folds) => folds.map((fold) => [fold.runId, fold.answer]);
    return { asked: tellAll(asked), followed: tellAll([...runs.values()]), events };
  },

  async text(url) {
    const run = new Client({ url }).ask("Count.", { agentKey: "react" });
    const pieces = [];
    for await (const piece of run.text()) pieces.push(piece);
    const again = [];
    for await (const event of run) again.push(event);
    const partial = new Client({ url }).attach(run.runId, { lastSeq: run.state.lastSeq - 2 }).text();
    const refused = await partial.next().then(() => "", (error) => error.message);
    return tell(run, { pieces, again, refused });
  },

  async gates(url) {
    const client = new Client({ url });
    const run = client.ask("Publish a note", { agentKey: "publisher" });
    const answering = (async () => {
      for await (const gates of client.watchGates()) {
        const mine = gates.find(({ runId }) => runId === run.runId);
        if (!mine) continue;
        const gate = await client.getGate(mine.runId, mine.gateId);
        const answer = { runId: mine.runId, gateId: mine.gateId, payload: { decision: "approve" } };
        return [gate.toolName, typeof gate.arguments, await client.answerGate(answer)];
      }
    })();
    const { end } = await run.finish();
    const waiting = (await client.listGates()).data.filter(({ runId }) => runId === run.runId);
    return { end: end.type, answered: await answering, waiting: waiting.length };
  },

  async runs(url) {
    let tokens = 0;
    const client = new Client({ url, token: async () => `token-${(tokens += 1)}` });
    const { chatId, reference } = await client.upload("note.txt", "The word is swordfish.");
    const first = await client.ask("Count.", { agentKey: "react", chatId, references: [reference] }).finish();
    const file = await (await client.fetchFile(reference.url)).text();
    const fork = await client.forkChat({ chatId, runId: first.runId });
    const history = new Fold();
    for (const event of (await client.getChat({ chatId: fork })).events) history.apply(event);

    const stopped = client.ask("Wait.", { agentKey: "react", chatId });
    for await (const event of stopped) if (event.type === "content.delta") await client.cancelRun(stopped.runId);
    const left = new AbortController();
    const leaving = client.ask("Wait.", { agentKey: "react", signal: left.signal });
    const reason = new Error("enough");
    const caught = await (async () => {
      for await (const event of leaving) if (event.type === "content.delta") left.abort(reason);
    })().catch((error) => error === reason || String(error));
    const steered = await client.steerRun(leaving.runId, "Be quick.");
    await client.cancelRun(leaving.runId);
    const listed = (await client.listRuns({ chatId })).data.map(({ state }) => state).sort();
    const agents = (await client.listAgents()).map(({ key }) => key);
    return {
      ...{ answer: first.answer, file, fork: history.answer, stopped: stopped.state.end.type, listed },
      ...{ caught, steered: steered.status, tokens: tokens > 10, agents: agents.includes("react") },
    };
  },

  async errors(url) {
    const client = new Client({ url });
    const refused = [
      () => client.ask("Hello", { agentKey: "nobody" }).finish(),
      () => client.ask("Hello", { chatId: "mine" }).finish(),
      () => client.call("GetRun", { runId: "11111111-1111-4111-8111-111111111111" }),
      () => new Client({ url: "http://127.0.0.1:1", reattachMs: 0 }).ask("Hello").finish(),
    ];
    const told = [];
    for (const refuse of refused) {
      const error = await refuse().catch((error) => error);
      const { status = null, reason = null, field = null, isRetriable = null } = error;
      told.push([error instanceof HeadraceError, error instanceof ConnectionLost, status, reason, field, isRetriable]);
    }
    const failed = await client.ask("Fail.", { agentKey: "fail-0" }).finish();
    return { told, failed: failed.end.error.code };
  },
};

async function answer(client, run) {
  const { id } = [...run.state.blocks.values()].find(({ name }) => name === LOCATE.name);
  await client.call("Submit", { runId: run.runId, toolId: id, payload: { city: "Lyon" } });
}
