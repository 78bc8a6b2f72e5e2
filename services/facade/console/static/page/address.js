// Which chat is shown, as the address after #: it survives a reload and can be kept as a bookmark.

export function current() {
  const place = new URLSearchParams(location.hash.slice(1));
  return { chatId: place.get("chat"), runId: place.get("run") };
}

export const hashOf = (place) =>
  `#${new URLSearchParams(Object.entries({ chat: place.chatId, run: place.runId }).filter(([, id]) => id))}`;

/** The page now shows this; nothing is loaded by it. `runId` is given while the run is live. */
export function tell(place, { isNew = false } = {}) {
  history[isNew ? "pushState" : "replaceState"](null, "", place.chatId ? hashOf(place) : location.pathname);
}

export function onChange(then) {
  addEventListener("hashchange", then);
  addEventListener("popstate", then);
}
