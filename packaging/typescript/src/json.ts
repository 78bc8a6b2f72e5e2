// Reads JSON without rounding large integers: a number that a double cannot hold keeps its own text.
// https://github.com/tc39/proposal-json-parse-with-source; a browser or Node without it rounds, as every JSON.parse does.

const LONG_NUMBER = /\d{16}/;

interface RawJson {
  rawJSON?: (text: string) => unknown;
}

function keepExactNumber(_key: string, value: unknown, context?: { source?: string }): unknown {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  const { rawJSON } = JSON as RawJson;
  return isRounded && context?.source && rawJSON ? rawJSON(context.source) : value;
}

export function parseJson(text: string): any {
  return LONG_NUMBER.test(text) ? JSON.parse(text, keepExactNumber) : JSON.parse(text);
}
