// Reads Server-Sent Events from a fetch response: EventSource can neither POST nor tell [DONE] from a lost connection.
import { ConnectionLost, HeadraceError, throwNetworkError } from "./errors.js";
/** Longer than any event of a server. */
const FRAME_CHARS_MAX = 64 * 1024 * 1024;
/**
 * Yield the data of each frame, without comments (heartbeats) and a frame that was cut short.
 *
 * Bytes are read when the next frame is asked for and not before, so a reader that is slow slows the server down, and
 * holds one piece of the stream at a time. After `silenceMs` without a byte, heartbeats included, the connection counts
 * as lost; for 0 it never does.
 */
export async function* readFrames(response, silenceMs = 0) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
        for (;;) {
            const { value, done } = await readWithin(reader, silenceMs).catch(throwNetworkError);
            if (done)
                return;
            const frames = (rest + value).split("\n\n");
            rest = frames.pop();
            if (rest.length > FRAME_CHARS_MAX)
                throw new HeadraceError(0, { msg: "an event is too large to be read" });
            for (const frame of frames) {
                if (frame.startsWith("event: error\n"))
                    return; // the key has ended; the next request receives the error
                const data = parseData(frame);
                if (data !== null)
                    yield data;
            }
        }
    }
    finally {
        await reader.cancel().catch(() => { }); // the connection is broken already, so nothing needs cancelling
    }
}
function readWithin(reader, silenceMs) {
    const reading = reader.read();
    if (!silenceMs)
        return reading;
    let timer;
    const silence = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new ConnectionLost(`nothing has come for ${silenceMs} ms`)), silenceMs);
    });
    return Promise.race([reading, silence]).finally(() => clearTimeout(timer));
}
function parseData(frame) {
    const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
    return lines.length ? lines.map((line) => line.slice(line[5] === " " ? 6 : 5)).join("\n") : null;
}
