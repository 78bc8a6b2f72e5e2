// Finds formulas in Markdown: $…$, $$…$$ and \(…\) in a line, $$…$$ and \[…\] as a block. Everything else stays text.

const CHARS_MAX = 2000;
const BLANK = /\n[ \t]*\n/; // no formula continues after it

const MARKS = { $$: "$$", "\\[": "\\]", "\\(": "\\)", $: "$" };

/** Return the token of the formula at the beginning of `text`, or undefined. */
function lexFormula(text, opens) {
  const open = opens.find((mark) => text.startsWith(mark));
  const begin = open?.length;
  const end = open ? text.slice(0, CHARS_MAX).indexOf(MARKS[open], begin) : -1;
  if (end < 0) return undefined;
  const tex = text.slice(begin, end);
  const raw = text.slice(0, end + MARKS[open].length);
  // Two dollar amounts are not a formula, and neither is text that crosses into code or a link's address.
  const isAmount = open === "$" && (/^\s|\s$|`|\]\(/.test(tex) || /^[\d`]/.test(text.slice(end + 1)));
  if (!tex.trim() || BLANK.test(tex) || isAmount) return undefined;
  return { type: "formula", raw, text: raw, tex, isDisplayed: open === "$$" || open === "\\[" };
}

/** Return the token of a formula that is a block. One whose end has not come is plain, and nothing else begins in it. */
function lexBlock(text) {
  const open = /^(?:\$\$|\\\[)/.exec(text)?.[0];
  if (!open) return undefined;
  const token = lexFormula(text, [open]);
  const rest = token && /^[ \t]*(?:\n+|$)/.exec(text.slice(token.raw.length));
  if (token) return rest ? { ...token, raw: token.raw + rest[0] } : undefined;
  const blank = BLANK.exec(text);
  const raw = blank ? text.slice(0, blank.index + blank[0].length) : text;
  return { type: "html", raw, text: raw };
}

/** The extensions for marked's lexer. */
export const MATH = {
  block: [lexBlock],
  inline: [(text) => lexFormula(text, ["$$", "\\(", "$"])],
  startInline: [
    (text) => {
      const at = text.search(/\$|\\\(/);
      return at < 0 ? undefined : at;
    },
  ],
};
