// A fetch for HttpAgent of @ag-ui/client that survives cut connections and restarted servers:
//
//   new HttpAgent({ url, fetch: resumingFetch() })
//
// Events without an id belong to the next one that has one; such a group is passed on whole, so that what the agent has
// is always what the last id says. The server goes on behind the id that comes back as Last-Event-ID. What else it
// says without an id, such as that the stream breaks, is left out: it is asked again.

const PAUSE_MS = 500;

/**
 * `open` makes one request and may be replaced, as in tests. After `attempts` in a row that bring nothing, it gives up.
 */
export function resumingFetch({ open = fetch, attempts = 20, pauseMs = PAUSE_MS } = {}) {
  return async (url, init) => {
    const first = await open(url, init);
    if (!first.ok || !first.body) return first;
    return new Response(createStream(readOn(first, { url, init, open, attempts, pauseMs })), first);
  };
}

/** Chromium has no ReadableStream.from (156). */
function createStream(chunks) {
  return new ReadableStream({
    async pull(controller) {
      const { value, done } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => chunks.return(),
  });
}

async function* readOn(response, { url, init, open, attempts, pauseMs }) {
  let lastId = null;
  let failures = 0;
  for (;;) {
    try {
      for await (const group of readGroups(response)) {
        failures = 0;
        lastId = group.id;
        yield new TextEncoder().encode(group.text);
        if (group.isLast) return;
      }
    } catch (error) {
      if (init.signal?.aborted) throw error;
    }
    do {
      if (++failures > attempts) throw new Error("the run's stream is cut, and cannot be had again");
      if (failures > 1) await new Promise((done) => setTimeout(done, pauseMs));
      const headers = lastId === null ? init.headers : { ...init.headers, "Last-Event-ID": lastId };
      response = await open(url, { ...init, headers }).catch((error) => {
        if (init.signal?.aborted) throw error;
        return null;
      });
    } while (!response || response.status >= 500 || response.status === 429);
    if (!response.ok) throw new Error(`HTTP ${response.status}: ${await response.text()}`);
  }
}

async function* readGroups(response) {
  const decoder = new TextDecoder();
  let rest = "";
  let text = "";
  for await (const bytes of response.body) {
    const events = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith(":")) continue;
      text += `${event}\n\n`;
      const id = /^id: (.*)$/m.exec(event);
      if (!id) continue;
      yield { id: id[1], text, isLast: /"type":"RUN_(FINISHED|ERROR)"/.test(text) };
      text = "";
    }
  }
}
