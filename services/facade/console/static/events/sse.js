// Reads Server-Sent Events from a fetch response: EventSource can neither POST nor tell [DONE] from a lost connection.

import { throwNetworkError } from "../server/api.js";

/** Yield the data of each frame, without comments (heartbeats) and a frame that was cut short. */
export async function* readFrames(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(throwNetworkError);
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        if (frame.startsWith("event: error\n")) return; // the key has ended, as the next request is told
        const data = parseData(frame);
        if (data !== null) yield data;
      }
    }
  } finally {
    await reader.cancel().catch(() => {}); // the connection is broken already, so nothing needs cancelling
  }
}

function parseData(frame) {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n") : null;
}
