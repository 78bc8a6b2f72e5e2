// Does one exercise in Node and prints what it gave as the last line. It pauses by a line on stdout until one comes back.

import { createInterface } from "node:readline";

import { exercises } from "./exercises.js";

const [name, ...parameters] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function pause(runId) {
  console.log(runId);
  await lines.next();
}

const result = JSON.stringify(await exercises[name](...parameters, pause));
process.stdout.write(`${result}\n`, () => process.exit(0));
