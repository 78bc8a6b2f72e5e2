// grpc-js with descriptors that are loaded at run time: a run of 20,000 deltas is read, another is cancelled.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address, image] = process.argv.slice(2);
const types = loader.loadFileDescriptorSetFromBuffer(readFileSync(image), { longs: Number, oneofs: true });
const { AgentService } = grpc.loadPackageDefinition(types).headrace.v1;
const agents = new AgentService(address, grpc.credentials.createInsecure());

async function ask(message, isCancelled) {
  let runId, answer = "", end;
  for await (const event of agents.query({ agent_key: "words", message })) {
    end = event.payload;
    if (event.run_start) runId = event.run_start.run_id;
    // A reader that lags behind is sent the block so far from its start, or as a snapshot once it is complete.
    if (event.content_start) answer = "";
    if (event.content_snapshot) answer = event.content_snapshot.text;
    if (event.content_delta) answer += event.content_delta.delta;
    if (isCancelled && event.content_delta) {
      isCancelled = false;
      await new Promise((resolve, reject) => agents.cancel({ run_id: runId }, (error) => (error ? reject(error) : resolve())));
    }
  }
  return { answer, end };
}

const many = await ask("Many.", false);
const stopped = await ask("Wait.", true);
const { version } = createRequire(import.meta.url)("@grpc/grpc-js/package.json");
console.log(JSON.stringify({ version, results: [many.answer.length, many.end, stopped.end] }));
agents.close();
