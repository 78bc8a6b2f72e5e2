// Makes elements of Markdown's tokens. They come from createElement alone, so there is nothing to sanitise: HTML is
// text, links go where createLink lets them.

import { createElement, createLink, isWorkspaceFile } from "../elements/dom.js";
import { decodeEntities } from "./entities.js";

// The only way to a new line in a table's cell.
const BREAK = /^<br\s*\/?>$/i;

const ALIGNMENTS = { left: "start", right: "end", center: "center" };

/** Return the element of a block; null if it shows nothing. */
export function renderBlock(token) {
  switch (token.type) {
    case "heading":
      // The page has its own first and second levels.
      return createElement(`h${Math.min(token.depth + 2, 6)}`, {}, ...renderInline(token.tokens));
    case "code":
      return renderCode(token);
    case "hr":
      return createElement("hr");
    case "blockquote":
      return createElement("blockquote", {}, ...renderBlocks(token.tokens));
    case "list":
      return renderList(token);
    case "table":
      return renderTable(token);
    case "paragraph":
    case "text":
      return createElement("p", {}, ...renderInline(token.tokens ?? [token]));
    case "html":
      return createElement("p", {}, token.text.trim());
    case "formula":
      return createElement("p", { "data-tex": token.tex }, token.text);
    default:
      return null; // spaces, and the targets of links
  }
}

/** Return the language of a code block; nothing where it has none. */
export const findLanguage = (token) => /^\S*/.exec(token.lang ?? "")[0];

const renderBlocks = (tokens) => tokens.map(renderBlock).filter(Boolean);

function renderCode(token) {
  const language = findLanguage(token);
  const code = createElement("code");
  code.append(document.createTextNode(token.text));
  return createElement(
    "pre",
    {
      tabindex: "0",
      role: "group",
      "aria-label": language ? `Code, ${language}` : "Code",
      "data-language": language || null,
    },
    code,
  );
}

function renderList({ ordered, start, items }) {
  const elements = items.map(renderItem);
  return ordered
    ? createElement("ol", { start: start === 1 ? null : start }, ...elements)
    : createElement("ul", {}, ...elements);
}

function renderItem(item) {
  const box = item.task && createElement("input", { type: "checkbox", disabled: true, checked: item.checked });
  const blocks = renderBlocks(item.tokens);
  if (!box) return createElement("li", {}, ...blocks);
  if (blocks[0]?.tagName === "P") blocks[0].prepend(box, " ");
  else blocks.unshift(box);
  return createElement("li", { class: "task" }, ...blocks);
}

function renderTable({ header, rows }) {
  const row = (cells, tag) => createElement("tr", {}, ...cells.map((cell) => renderCell(cell, tag)));
  const head = createElement("thead", {}, row(header, "th"));
  const body = createElement("tbody", {}, ...rows.map((cells) => row(cells, "td")));
  return createElement(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
    createElement("table", {}, head, body),
  );
}

const renderCell = (cell, tag) =>
  createElement(tag, { class: `to-${ALIGNMENTS[cell.align] ?? "start"}` }, ...renderInline(cell.tokens));

const renderInline = (tokens) => tokens.flatMap(renderToken);

function renderToken(token) {
  switch (token.type) {
    case "del":
      // A single tilde is one of 10~20.
      if (!token.raw.startsWith("~~")) return ["~", ...renderInline(token.tokens), "~"];
    // falls through
    case "strong":
    case "em":
      return createElement(token.type, {}, ...renderInline(token.tokens));
    case "codespan":
      return createElement("code", {}, token.text);
    case "formula":
      return createElement("span", { "data-tex": token.tex, "data-display": token.isDisplayed ? "true" : null }, token.text);
    case "br":
      return createElement("br");
    case "link":
      return renderLink(token);
    case "image":
      return renderImage(decodeEntities(token.href), decodeEntities(token.text));
    case "text":
      return token.tokens ? renderInline(token.tokens) : decodeEntities(token.text);
    case "checkbox":
      return []; // its item's
    case "html":
      return BREAK.test(token.text) ? createElement("br") : token.text;
    default:
      return token.text; // what is escaped
  }
}

/** A bare address ends where its ASCII does: it is followed by text in scripts without spaces. */
function renderLink(token) {
  const rest = token.raw === token.text ? /[^\x00-\x7f].*$/s.exec(token.text)?.[0] ?? "" : "";
  if (!rest) return createLink(decodeEntities(token.href), ...renderInline(token.tokens.map(unlinkImage)));
  const shown = token.text.slice(0, -rest.length);
  return [createLink(token.href.slice(0, token.href.lastIndexOf(shown) + shown.length), shown), rest];
}

/** Return an image that would be a link within another as its text. */
const unlinkImage = (token) =>
  token.type === "image" && !isWorkspaceFile(decodeEntities(token.href))
    ? { type: "text", text: token.text || token.href }
    : token;

/** Show our own files; a picture from elsewhere becomes a link, because loading it would reveal the reader to its server. */
function renderImage(address, alt) {
  const isOurs = isWorkspaceFile(address);
  return isOurs ? createElement("img", { src: address, alt, loading: "lazy" }) : createLink(address, alt || address);
}
