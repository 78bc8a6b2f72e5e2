// Reads a query and a run with @microsoft/fetch-event-source, which is made for browsers, and prints what it was given.
// Arguments: the facade's URL, a run's id.
globalThis.window = globalThis;
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
const { fetchEventSource } = await import("@microsoft/fetch-event-source");

const [url, runId] = process.argv.slice(2);

async function read(path, options) {
  const events = [];
  const leaving = new AbortController();
  await fetchEventSource(url + path, {
    ...options,
    signal: leaving.signal,
    openWhenHidden: true,
    onmessage(message) {
      if (message.data === "[DONE]") leaving.abort();
      else events.push({ id: message.id, event: message.event, data: JSON.parse(message.data) });
    },
    onclose() {
      throw new Error("ended before [DONE]");
    },
    onerror: () => 10, // ms; then it asks again, with the last id
  });
  return events;
}

const query = await read("/api/query", {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ message: "hi" }),
});
const attach = await read(`/api/attach?runId=${runId}`, {});
console.log(JSON.stringify({ query, attach }));
