// Shows the values of an item's fields according to their names.

import { createElement } from "../elements/dom.js";
import { formatDate, formatMs, formatUsd } from "../elements/format.js";
import { createMark } from "../elements/page.js";

/** Colours of states. */
const KINDS = {
  ...{ active: "good", running: "good", delivered: "good", done: "good", started: "good", closed: "good", free: "good" },
  ...{ waiting: "warn", unconfirmed: "warn", disabled: "warn", paused: "warn", going: "warn", "half-open": "warn" },
  ...{ failed: "bad", dead: "bad", revoked: "bad", expired: "bad", missed: "bad", open: "bad", held: "bad", full: "bad" },
};

const WORDS = { going: "in progress" };

export const createState = (state) => createMark(WORDS[state] ?? state, KINDS[state]);

/** Write the name of a field or a word of the contract in words. */
export const spell = (name) => name.replaceAll("_", " ").replace(/([a-z])([A-Z])/g, (_, end, start) => `${end} ${start.toLowerCase()}`);

/** Create a text, or an element, with a smaller text below it. */
export const createPair = (text, small) =>
  createElement("span", {}, text, ...(small ? [createElement("small", {}, small)] : []));

/** Create a list of messages, each a line with the values of its fields. */
const createItems = (messages) =>
  createElement("ul", {}, ...messages.map((one) => createElement("li", {}, Object.values(one).map((value) => spell(String(value))).join(" · "))));

export function formatField(name, value) {
  if (value === undefined || value === "" || (Array.isArray(value) && !value.length)) return "–";
  if (name === "state") return createState(value);
  if (name.endsWith("At")) return value ? formatDate(value) : "–";
  if (name.endsWith("NanoUsd")) return formatUsd(value);
  if (name.endsWith("Ms")) return formatMs(value);
  if (name === "credential" || name.endsWith("Id")) return createElement("code", {}, value);
  if (Array.isArray(value)) return typeof value[0] === "object" ? createItems(value) : value.map(spell).join(", ");
  return typeof value === "boolean" ? (value ? "yes" : "no") : value;
}
