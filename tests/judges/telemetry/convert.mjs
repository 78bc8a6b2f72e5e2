// Reads a JSON array of spans' attributes and writes what OpenInference (Phoenix) makes of each.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.argv[2] + "/");
const { convertGenAISpanAttributesToOpenInferenceSpanAttributes: convert } = require("@arizeai/openinference-genai");
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(convert)));
