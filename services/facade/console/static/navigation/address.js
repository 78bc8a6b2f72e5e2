// Keeps the current view in the address after #, so that it survives a reload and can be bookmarked: #chat=… or #page=….

let chatAddress = { chatId: null };

/** Read the page's name (empty: the chats), its parameters, and the chat that is or was shown last. */
export function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const page = parameters.get("page") ?? "";
  parameters.delete("page");
  if (!page) chatAddress = { chatId: parameters.get("chat") };
  return { page, parameters: Object.fromEntries(parameters), ...chatAddress };
}

function formatParameters(parameters) {
  return `#${new URLSearchParams(Object.entries(parameters).filter(([, value]) => value))}`;
}

export const formatHash = ({ chatId }) => formatParameters({ chat: chatId });

export const formatPageHash = (page, parameters = {}) => formatParameters({ page, ...parameters });

/** Return the address of the chats: the chat that was shown last, or a new one. */
export const getChatsHash = () => formatHash(chatAddress);

/** Write which chat is shown into the address, without loading anything */
export function updateAddress({ chatId = null }, { isNew = false } = {}) {
  const { page } = readAddress();
  chatAddress = { chatId };
  if (page && !isNew) return; // a run that continues while another page is open leaves the address to that page
  history[isNew ? "pushState" : "replaceState"](null, "", chatId ? formatHash(chatAddress) : location.pathname);
}

/** Write a page's parameters into the address, such as filters, without a step in the history. */
export function updatePageAddress(page, parameters) {
  history.replaceState(null, "", formatPageHash(page, parameters));
}

/** Call back when the address has changed: by a link, by back or forward, or by hand. */
export function watchAddress(callback) {
  addEventListener("popstate", callback); // also fires when only the part after # changes
}
