// Reads JSON without rounding large integers: a number that a double cannot hold keeps its own text.
// https://github.com/tc39/proposal-json-parse-with-source; a browser without it rounds, as every JSON.parse does.

const LONG_NUMBER = /\d{16}/;

function keepExactNumber(_key, value, context) {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context?.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

export function parseJson(text) {
  return LONG_NUMBER.test(text) ? JSON.parse(text, keepExactNumber) : JSON.parse(text);
}

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
