// Splits Markdown into tokens: marked's lexer, within bounds. Text beyond them is shown as it is.

import { Lexer } from "../vendor/marked.js";
import { adaptRules } from "./emphasis.js";
import { MATH } from "./math.js";

// CommonMark takes a footnote for the target of a link, and its text would not be shown.
const NOTE = /^ {0,3}\[\^[^\]\n]+\]:[^\n]*(?:\n+|$)/;

const OPTIONS = { gfm: true, breaks: true, extensions: { ...MATH, block: [...MATH.block, lexNote] } };
const INLINE_RULES = adaptRules(Lexer.rules.inline.breaks);
const CHARS_MAX = 10_000; // of a paragraph
const EMPHASIS_MAX = 1000; // marks of a paragraph: finding their ends is quadratic at worst
const EMPHASIS = /[*_~]/g;

// A line that begins more than twelve quotes and lists, whose inside is read once for each; a rule begins none.
const DEEP = /^(?![ \t]*([-*])(?:[ \t]*\1)*[ \t]*$)(?:[ \t]*(?:>|[-*+](?=\s)|\d{1,9}[.)](?=\s))){13}/m;

/** Return the tokens of blocks, and whether there are targets of reference links among them. */
export function lexBlocks(text) {
  const found = { tokens: [], definesLinks: false };
  for (let rest = text; rest;) {
    const deep = DEEP.exec(rest);
    const at = deep ? deep.index : rest.length;
    if (at) lexShallow(rest.slice(0, at), found);
    const blank = rest.indexOf("\n\n", at);
    const end = blank < 0 ? rest.length : blank + 2;
    if (deep) found.tokens.push(makePlain(rest.slice(at, end)));
    rest = rest.slice(deep ? end : at);
  }
  return found;
}

const makePlain = (text) => ({ type: "html", raw: text, text });

function lexShallow(text, found) {
  const lexer = new Lexer(OPTIONS);
  lexer.tokenizer.rules.inline = INLINE_RULES;
  try {
    const tokens = lexer.blockTokens(text, []);
    for (const inline of lexer.inlineQueue) lexInline(lexer, inline.src, inline.tokens);
    found.tokens.push(...tokens);
    found.definesLinks ||= Object.keys(lexer.tokens.links).length > 0;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // else the stack is too small
    found.tokens.push(makePlain(text));
  }
}

function lexNote(text) {
  const raw = NOTE.exec(text)?.[0];
  const token = raw && { type: "paragraph", raw, text: raw.trim(), tokens: [] };
  if (token) this.lexer.inline(token.text, token.tokens);
  return token;
}

function lexInline(lexer, text, tokens) {
  const isLong = text.length > CHARS_MAX || (text.match(EMPHASIS)?.length ?? 0) > EMPHASIS_MAX;
  if (isLong) tokens.push({ type: "text", raw: text, text });
  else lexer.inlineTokens(text, tokens);
}
