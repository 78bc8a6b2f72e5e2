// JSON whose large integers survive: a number that a double cannot hold is kept as its own text.
// https://github.com/tc39/proposal-json-parse-with-source; a browser without it rounds, as every JSON.parse does.

const LONG_NUMBER = /\d{16}/;

function exact(_key, value, context) {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context?.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

export function parse(text) {
  return LONG_NUMBER.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

/** For people: indented. */
export function pretty(value) {
  return JSON.stringify(value, null, 2);
}

/** `text` as an indented JSON text, or as it is when it is none. */
export function prettyText(text) {
  try {
    const value = parse(text);
    return typeof value === "object" && value !== null ? pretty(value) : text;
  } catch {
    return text;
  }
}
