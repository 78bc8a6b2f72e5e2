// Keeps the shown chat in the address after #, where it survives a reload and can be bookmarked.

export function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  return { chatId: parameters.get("chat"), runId: parameters.get("run") };
}

export const formatHash = (address) =>
  `#${new URLSearchParams(Object.entries({ chat: address.chatId, run: address.runId }).filter(([, id]) => id))}`;

/** Write what the page shows into the address, without loading anything; `runId` is given while the run is live. */
export function updateAddress(address, { isNew = false } = {}) {
  history[isNew ? "pushState" : "replaceState"](null, "", address.chatId ? formatHash(address) : location.pathname);
}

export function watchAddress(callback) {
  addEventListener("hashchange", callback);
  addEventListener("popstate", callback);
}
