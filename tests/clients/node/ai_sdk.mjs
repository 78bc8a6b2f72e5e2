// Vercel's AI SDK, by its provider for compatible servers (chat completions) and by OpenAI's own (responses).

import assert from "node:assert/strict";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

import { COUNT, Locator, Place, URL, WHERE, WHICH, report, tell } from "./exercises.mjs";

const chat = createOpenAICompatible({ name: "headrace", baseURL: URL, supportsStructuredOutputs: true });
const responses = createOpenAI({ baseURL: URL, apiKey: "none" });

function offer(here, model) {
  const locate = tool({
    description: "Where the user is",
    inputSchema: z.object({ exact: z.boolean() }),
    execute: async (given) => here.locate(given),
  });
  return { model: chat(model), prompt: WHERE, tools: { locate }, stopWhen: stepCountIs(5) };
}

async function readObject(model) {
  const { partialObjectStream, object } = streamObject({ model, schema: Place, prompt: WHICH });
  for await (const _ of partialObjectStream);
  return object;
}

await report("ai", {
  async text(model) {
    const { text } = await generateText({ model: chat(model), prompt: COUNT });
    return text;
  },
  async "streamed text"(model) {
    const pieces = [];
    for await (const piece of streamText({ model: chat(model), prompt: COUNT }).textStream) pieces.push(piece);
    return tell(pieces);
  },
  async function(model) {
    const here = new Locator();
    const { text } = await generateText(offer(here, model));
    return [text, here.calls];
  },
  async "streamed function"(model) {
    const here = new Locator();
    const text = await streamText(offer(here, model)).text;
    return [text, here.calls];
  },
  async typed(model) {
    const given = await generateObject({ model: chat(model), schema: Place, prompt: WHICH });
    const { object } = await generateObject({ model: responses(model), schema: Place, prompt: WHICH });
    assert.deepEqual(object, given.object);
    return object;
  },
  async "streamed typed"(model) {
    const given = await readObject(chat(model));
    const object = await readObject(responses(model));
    assert.deepEqual(object, given);
    return object;
  },
});
