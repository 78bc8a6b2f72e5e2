// Reads JSON without rounding large integers: a number that a double cannot hold keeps its own text.
// https://github.com/tc39/proposal-json-parse-with-source; a browser or Node without it rounds, as every JSON.parse does.
const LONG_NUMBER = /\d{16}/;
function keepExactNumber(_key, value, context) {
    const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
    const { rawJSON } = JSON;
    return isRounded && context?.source && rawJSON ? rawJSON(context.source) : value;
}
export function parseJson(text) {
    return LONG_NUMBER.test(text) ? JSON.parse(text, keepExactNumber) : JSON.parse(text);
}
