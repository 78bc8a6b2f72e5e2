// Server-Sent Events out of a fetch answer: the browser's own EventSource can neither POST nor tell [DONE] from a loss.

import { asLost } from "../server/api.js";

/** The data of each frame, as it comes; comments (heartbeats) and a frame that was cut short are left out. */
export async function* frames(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(asLost);
      if (done) return;
      const whole = (rest + value).split("\n\n");
      rest = whole.pop();
      for (const frame of whole) {
        const data = dataOf(frame);
        if (data !== null) yield data;
      }
    }
  } finally {
    await reader.cancel().catch(() => {}); // already broken: there is nothing left to give back
  }
}

function dataOf(frame) {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n") : null;
}
