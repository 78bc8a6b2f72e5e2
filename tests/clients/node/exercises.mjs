// Runs a client's exercises and prints what they gave, as one line of JSON. tests/support/clients/script.py has what is expected.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { z } from "zod";

export const URL = process.argv[2];
export const COUNT = "Count.";
export const WHERE = "Where am I?";
export const WHICH = "Which city?";
export const Place = z.object({ city: z.string(), people: z.number().int() });

const MODELS = ["schemas", "words"];

/** What came in pieces: the text, and whether they were several. */
export const tell = (pieces) => [pieces.join(""), pieces.filter(Boolean).length > 1];

/** The caller's function, which keeps what it was called with. */
export class Locator {
  calls = [];

  locate(given) {
    this.calls.push(given);
    return { city: "Lyon" };
  }
}

/** Does each exercise with each model. */
export async function report(name, exercises) {
  const results = {};
  for (const [exercise, run] of Object.entries(exercises)) {
    results[exercise] = {};
    for (const model of MODELS) {
      results[exercise][model] = await run(model).catch((error) => {
        console.error(error);
        return String(error);
      });
    }
  }
  console.log(JSON.stringify({ version: readVersion(name), results }));
}

function readVersion(name) {
  const paths = createRequire(import.meta.url).resolve.paths(name).map((path) => `${path}/${name}/package.json`);
  return JSON.parse(readFileSync(paths.find(existsSync))).version;
}
