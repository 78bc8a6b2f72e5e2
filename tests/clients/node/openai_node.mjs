// OpenAI's own client for Node.

import assert from "node:assert/strict";

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";

import { COUNT, Locator, Place, URL, WHERE, WHICH, report, tell } from "./exercises.mjs";

const api = new OpenAI({ baseURL: URL, apiKey: "none", maxRetries: 0 });
const say = (content) => [{ role: "user", content }];

function offer(here) {
  const parameters = { type: "object", properties: { exact: { type: "boolean" } }, required: ["exact"] };
  const locate = { name: "locate", description: "Where the user is", parameters, parse: JSON.parse };
  return [{ type: "function", function: { ...locate, function: (given) => here.locate(given) } }];
}

await report("openai", {
  async text(model) {
    const answer = await api.chat.completions.create({ model, messages: say(COUNT) });
    return answer.choices[0].message.content;
  },
  async "streamed text"(model) {
    const pieces = [];
    const stream = await api.chat.completions.create({ model, messages: say(COUNT), stream: true });
    for await (const chunk of stream) pieces.push(chunk.choices[0].delta.content ?? "");
    return tell(pieces);
  },
  async function(model) {
    const here = new Locator();
    const runner = api.chat.completions.runTools({ model, messages: say(WHERE), tools: offer(here) });
    return [await runner.finalContent(), here.calls];
  },
  async "streamed function"(model) {
    const here = new Locator();
    const runner = api.chat.completions.runTools({ model, messages: say(WHERE), tools: offer(here), stream: true });
    return [await runner.finalContent(), here.calls];
  },
  async typed(model) {
    const wanted = { response_format: zodResponseFormat(Place, "place") };
    const whole = await api.chat.completions.parse({ model, messages: say(WHICH), ...wanted });
    const text = { format: zodTextFormat(Place, "place") };
    const response = await api.responses.parse({ model, input: WHICH, text });
    assert.deepEqual(response.output_parsed, whole.choices[0].message.parsed);
    return response.output_parsed;
  },
  async "streamed typed"(model) {
    const wanted = { response_format: zodResponseFormat(Place, "place") };
    const stream = api.chat.completions.stream({ model, messages: say(WHICH), ...wanted });
    return (await stream.finalChatCompletion()).choices[0].message.parsed;
  },
});
