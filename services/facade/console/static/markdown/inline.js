// Renders the inside of a Markdown paragraph: code, emphasis, links, line breaks. Anything else stays text.

import { createElement, createLink, isWorkspaceFile } from "../elements/dom.js";

const DEPTH_MAX = 6; // emphasis in links in emphasis …: no answer needs more
const CHARS_MAX = 10_000; // finding closing marks is quadratic at worst; a longer paragraph is shown as it is

const MARK =
  /\\([!-/:-@[-`{-~])|(`+)|(!?\[)|(\*\*|__|~~|\*|_)|<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>|(https?:\/\/[^\s<>"`]{1,2000})|(\\?\n)/g;
const TARGET = /\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)/y;
const ELEMENTS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
const WORD = /[\p{L}\p{N}]/u;

/** Return the nodes of `text`. */
export function renderInline(text, depth = 0) {
  if (depth > DEPTH_MAX || text.length > CHARS_MAX) return [text];
  const nodes = [];
  let from = 0;
  for (let match; (match = findMark(text, from));) {
    const result = readMark(text, match, depth);
    const plainEnd = result ? match.index : match.index + match[0].length;
    if (plainEnd > match.from) nodes.push(text.slice(match.from, plainEnd));
    if (result) nodes.push(result.node);
    from = result ? result.end : plainEnd;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

function findMark(text, from) {
  MARK.lastIndex = from;
  const match = MARK.exec(text);
  return match && Object.assign(match, { from });
}

/** Return the node that a mark begins and where it ends; null when the mark is just a character. */
function readMark(text, match, depth) {
  const [whole, escaped, ticks, bracket, emphasis, angled, bare, newline] = match;
  const end = match.index + whole.length;
  if (escaped) return { node: escaped, end };
  if (ticks) return readCode(text, end, ticks);
  if (bracket) return readLink(text, end, bracket === "![", depth);
  if (emphasis) return readEmphasis(text, match.index, emphasis, depth);
  if (angled) return { node: createLink(angled, angled), end };
  if (bare) return readBareLink(bare, match.index);
  return newline ? { node: createElement("br"), end } : null;
}

function readCode(text, from, ticks) {
  let close = text.indexOf(ticks, from);
  while (close >= 0 && text[close + ticks.length] === "`") {
    while (text[close] === "`") close += 1;
    close = text.indexOf(ticks, close);
  }
  if (close < 0) return null;
  const inner = text.slice(from, close).replaceAll("\n", " ");
  const trimmed = /^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner;
  return { node: createElement("code", {}, trimmed), end: close + ticks.length };
}

function readLink(text, from, isImage, depth) {
  let close = from;
  for (let open = 1; close < text.length; close += 1) {
    if (text[close] === "\\") close += 1;
    else if (text[close] === "[") open += 1;
    else if (text[close] === "]" && --open === 0) break;
  }
  TARGET.lastIndex = close + 1;
  const target = close < text.length ? TARGET.exec(text) : null;
  if (!target) return null;
  const label = text.slice(from, close);
  const node = isImage ? createImage(target[1], label) : createLink(target[1], ...renderInline(label, depth + 1));
  return { node, end: TARGET.lastIndex };
}

/** Show our own files; a picture from elsewhere becomes a link, since loading it would tell its server who looks. */
function createImage(address, alt) {
  const isOurs = isWorkspaceFile(address);
  return isOurs ? createElement("img", { src: address, alt, loading: "lazy" }) : createLink(address, alt || address);
}

function readEmphasis(text, at, mark, depth) {
  const from = at + mark.length;
  const isInWord = mark[0] === "_" && WORD.test(text[at - 1] ?? " ");
  if (isInWord || /^(\s|$)/.test(text.slice(from, from + 1))) return null;
  const close = findClosingMark(text, from, mark);
  if (close < 0) return null;
  return {
    node: createElement(ELEMENTS[mark], {}, ...renderInline(text.slice(from, close), depth + 1)),
    end: close + mark.length,
  };
}

function findClosingMark(text, from, mark) {
  for (let at = text.indexOf(mark, from + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    while (mark.length === 2 && text[at + 2] === mark[0]) at += 1; // of ***, the outer two
    if (mark.length === 1 && text[at + 1] === mark)
      at += 1; // a pair is not a single mark
    else if (/\S/.test(text[at - 1]) && !(mark[0] === "_" && WORD.test(text[at + mark.length] ?? " "))) return at;
  }
  return -1;
}

function readBareLink(address, at) {
  let end = address.replace(/[.,;:!?'*_~\]]+$/, "");
  if (end.endsWith(")") && !end.includes("(")) end = end.replace(/[.,;:!?)]+$/, "");
  return { node: createLink(end, end), end: at + end.length };
}
