// Elements without markup: text from models and tools only ever becomes text nodes.

/** An element; `attributes` may hold on… listeners and properties of boolean kind, children are nodes or strings. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element[name] = value;
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Text for screen readers alone. */
export const hidden = (text) => h("span", { class: "hidden" }, text);

export const button = (label, onclick, attributes = {}) =>
  h("button", { type: "button", onclick, ...attributes }, label);

/** Whether an address is that of a file of a chat's workspace. */
export const isOurFile = (address) => address.startsWith("/api/resource?");

const SAFE_LINK = /^(https?:|mailto:)/i;

/** The address when it may be followed: http, https and mailto, and our own files; else null. */
export function safeUrl(address) {
  try {
    const url = new URL(address, location.href);
    if (!SAFE_LINK.test(url.protocol)) return null;
    if (SAFE_LINK.test(address) || isOurFile(address)) return url.href;
  } catch {
    // No address at all.
  }
  return null;
}

/** A link, or its text alone when the address is not safe to follow. */
export function link(address, ...children) {
  const href = safeUrl(address);
  if (!href) return h("span", {}, ...children);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
