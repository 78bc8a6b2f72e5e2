// Finds formulas in Markdown: $…$ and \(…\) in a line, $$…$$ and \[…\] as a block. What is no formula stays text.

const CHARS_MAX = 2000;

const MARKS = { $$: "$$", "\\[": "\\]", "\\(": "\\)", $: "$" };

/** Return the token of the formula that `text` begins with; undefined when there is none. */
function lexFormula(text, opens) {
  const open = opens.find((mark) => text.startsWith(mark));
  const begin = open?.length;
  const end = open ? text.slice(0, CHARS_MAX).indexOf(MARKS[open], begin) : -1;
  if (end < 0) return undefined;
  const tex = text.slice(begin, end);
  const raw = text.slice(0, end + MARKS[open].length);
  // Two amounts of dollars are no formula.
  if (!tex.trim() || (open === "$" && (/^\s|\s$/.test(tex) || /^\d/.test(text.slice(end + 1))))) return undefined;
  return { type: "formula", raw, text: raw, tex };
}

function lexBlock(text) {
  const token = /^(?:\$\$|\\\[)/.test(text) ? lexFormula(text, ["$$", "\\["]) : undefined;
  const rest = token && /^[ \t]*(?:\n+|$)/.exec(text.slice(token.raw.length));
  return rest ? { ...token, raw: token.raw + rest[0] } : undefined;
}

const find = (pattern) => (text) => {
  const at = text.search(pattern);
  return at < 0 ? undefined : at;
};

/** The extensions for marked's lexer. */
export const MATH = {
  block: [lexBlock],
  startBlock: [find(/(?<=\n)(?:\$\$|\\\[)/)],
  inline: [(text) => lexFormula(text, ["$$", "\\(", "$"])],
  startInline: [find(/\$|\\\(/)],
};
