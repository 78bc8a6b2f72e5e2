// Reads the events of a cassette (docs/reference/cassette.md): a recorded run as lines of JSON. Nothing leaves the page.

const VERSION = 1;
export const BYTES_MAX = 64 * 1024 * 1024;
const EVENTS_MAX = 200_000;

/**
 * Return the header and the events of a cassette, each with `at`, its milliseconds since the run began. Throws an Error
 * that names the line.
 */
export function readCassette(text) {
  const lines = text.split("\n");
  const header = parseLine(lines[0] ?? "", 1);
  if (!Number.isInteger(header.cassette)) throw new Error("Line 1: not a cassette.");
  if (header.cassette < 1 || header.cassette > VERSION) {
    throw new Error(`Line 1: version ${header.cassette} is not supported; this page supports ${VERSION}.`);
  }
  const events = [];
  for (let index = 1; index < lines.length; index += 1) {
    if (!lines[index].trim()) continue;
    const line = parseLine(lines[index], index + 1);
    if (!("event" in line)) continue;
    const { event, at } = line;
    if (typeof event?.type !== "string" || !Number.isFinite(at)) throw new Error(`Line ${index + 1}: not an event.`);
    events.push({ event, at });
    if (events.length > EVENTS_MAX) throw new Error(`There are more than ${EVENTS_MAX} events.`);
  }
  if (!events.length) throw new Error("The cassette has no events.");
  return { header, events };
}

function parseLine(line, number) {
  try {
    const given = JSON.parse(line);
    if (given !== null && typeof given === "object" && !Array.isArray(given)) return given;
  } catch {
    // Reported below, like JSON that is not an object.
  }
  throw new Error(`Line ${number}: not a JSON object.`);
}
