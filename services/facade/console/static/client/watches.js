// Streams that a caller leaves when it has seen enough: the gates that wait, and all runs of a chat.
import { parseJson } from "./json.js";
import { watch } from "./reading.js";
/** Yield the events of a chat's runs after `cursor`, each once and in order; `open` opens a stream after a cursor. */
export function followChat(open, cursor, options) {
    async function* read(frames) {
        for await (const data of frames) {
            const event = parseJson(data);
            cursor = event.cursor;
            yield event;
        }
    }
    return watch((signal) => open(cursor, signal), read, options);
}
/** Yield all gates that wait, in the server's order, first and after each change; `open` opens a stream. */
export function watchGates(open, options) {
    return watch(open, readGates, options);
}
async function* readGates(frames) {
    let gates = new Map();
    let isListing = false; // the server sends a list first, and again if it has lost track
    for await (const data of frames) {
        const { listBegin, gate, listEnd } = parseJson(data);
        if (listBegin) {
            gates = new Map();
            isListing = true;
        }
        if (listEnd)
            isListing = false;
        if (gate) {
            const key = `${gate.runId}/${gate.gateId}`;
            if (gate.state === "open")
                gates.set(key, gate);
            else
                gates.delete(key);
        }
        if (!isListing)
            yield [...gates.values()];
    }
}
