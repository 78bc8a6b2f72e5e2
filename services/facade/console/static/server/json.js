// Shows JSON. It is read by the package's parseJson, which does not round large integers.

import { parseJson } from "../client/json.js";

/** Format `value` as indented JSON. */
export function formatJson(value) {
  return JSON.stringify(value, null, 2);
}

/** Indent `text` if it is JSON; return other text unchanged. */
export function formatJsonText(text) {
  try {
    const value = parseJson(text);
    return typeof value === "object" && value !== null ? formatJson(value) : text;
  } catch {
    return text;
  }
}
