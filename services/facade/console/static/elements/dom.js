// Creates elements without markup: text from models and tools only ever becomes text nodes.

/** Create an element; `attributes` may hold on… listeners and boolean properties, children are nodes or strings. */
export function createElement(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element[name] = value;
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Create text for screen readers alone. */
export const createHiddenText = (text) => createElement("span", { class: "hidden" }, text);

export const createButton = (label, onclick, attributes = {}) =>
  createElement("button", { type: "button", onclick, ...attributes }, label);

/** Return whether an address names a file in a chat's workspace. */
export const isWorkspaceFile = (address) => address.startsWith("/api/resource?");

const SAFE_LINK = /^(https?:|mailto:)/i;

/** Return the full address if it is safe to follow (http, https, mailto, our own files), else null. */
export function resolveSafeUrl(address) {
  try {
    const url = new URL(address, location.href);
    if (!SAFE_LINK.test(url.protocol)) return null;
    if (SAFE_LINK.test(address) || isWorkspaceFile(address)) return url.href;
  } catch {
    // Not an address.
  }
  return null;
}

/** Create a link, or its text alone when the address is not safe to follow. */
export function createLink(address, ...children) {
  const href = resolveSafeUrl(address);
  if (!href) return createElement("span", {}, ...children);
  return createElement("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
