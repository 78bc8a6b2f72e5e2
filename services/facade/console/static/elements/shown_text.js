// Shows text by other people unchanged, except that characters which hide or reorder text become visible escapes.
// headrace/shown_text.py does the same; tests/shown_text_cases.json tests both.

import { formatCount } from "./format.js";

export const SHOWN_CHARS_MAX = 100_000; // about 2,000 lines; more take a browser long to lay out

const ISOLATE = "\u2068";
const END = "\u2069";

const HIDDEN = /(?![ \t\n])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\u{1107f}\u{13441}\u{13442}\u{16fe4}\u{1d159}]/gu;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]+/gu;

const escapeUnit = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Return `text` with a JSON escape for each character that is invisible or moves others, except tab and newline. */
export const makeVisible = (text) => String(text).replace(HIDDEN, (char) => char.split("").map(escapeUnit).join(""));

const PADDING = /(?<=\S) {33,}/g;

/** Return a call's arguments made visible, with an escape for each space of a run that would push what follows it out of
 * sight. They are JSON as we format it, where such runs are in texts alone. */
export const makeArgumentsVisible = (json) => makeVisible(json).replace(PADDING, (run) => "\\u0020".repeat(run.length));

const isolate = (text) =>
  text
    .replace(RIGHT_TO_LEFT, (run) => ISOLATE + run + END)
    .replaceAll(`${END} ${ISOLATE}`, " ");

/** Return `text` made visible, with an isolate around each run of right-to-left letters: others keep their places. */
export const showText = (text) => isolate(makeVisible(text));

/** Return a call's arguments as `showText` does. */
export const showArguments = (json) => isolate(makeArgumentsVisible(json));

/** Put the first `max` characters on one line, and say how many are missing. */
export function shortenLine(text, max) {
  const line = makeVisible(text).replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max)}… (${formatCount(line.length - max, "more character")})` : line;
}
