// Colours code and sets formulas in blocks that are finished. Their libraries are loaded when the first answer needs
// them; without them, and for what is beyond the bounds, the text stays as it is.

import { createCopyButton } from "../elements/copy.js";
import { createElement } from "../elements/dom.js";

// The languages' patterns are not all linear: in these bounds a block takes a fraction of a second at worst, and a
// language that has taken so long is not tried again.
const CODE_CHARS_MAX = 10_000;
const LINE_CHARS_MAX = 240;
const SLOW_MS = 150;
const LANGUAGES = new Set(
  (
    "bash c cpp cs csharp css diff go graphql html ini java javascript js json kotlin lua makefile php py python r rb " +
    "ruby rs rust scss sh shell sql swift toml ts typescript xml yaml yml"
  ).split(" "),
);

const find = (element, selector) =>
  element.matches(selector) ? [element] : [...element.querySelectorAll(selector)];

/** Add to a finished block the parts that may come later: colours, formulas, and buttons that copy code. */
export async function enrich(element) {
  await null; // the block is shown first
  if (!element.isConnected) return;
  for (const block of find(element, "pre")) addCopyButton(block);
  try {
    for (const formula of find(element, "[data-tex]")) await setFormula(formula);
    for (const code of find(element, "[data-language]")) await colourCode(code);
  } catch {
    // A library did not load, or gave up.
  }
}

function addCopyButton(block) {
  const frame = createElement("div", { class: "code" });
  block.replaceWith(frame);
  frame.append(block, createCopyButton("Copy code", () => block.textContent));
}

async function colourCode(block) {
  const { language } = block.dataset;
  const text = block.textContent;
  const isShort = text.length <= CODE_CHARS_MAX && text.split("\n").every((line) => line.length <= LINE_CHARS_MAX);
  if (!LANGUAGES.has(language.toLowerCase()) || !isShort) return;
  const { default: highlighter } = await import("../vendor/highlight.js");
  const begun = performance.now();
  const tree = highlighter.highlight(text, { language, ignoreIllegals: true })._emitter.root;
  if (performance.now() - begun > SLOW_MS) LANGUAGES.delete(language.toLowerCase());
  block.firstChild.replaceChildren(...createSpans(tree.children));
}

/** Create nodes of the library's tokens: its own HTML would be markup from a string. */
function createSpans(tokens) {
  return tokens.map((token) => {
    if (typeof token === "string") return token;
    const kind = token.scope?.split(".")[0].replace(/^language:.*/, "");
    return createElement("span", { class: kind && `hl-${kind}` }, ...createSpans(token.children));
  });
}

async function setFormula(element) {
  const { default: temml } = await import("../vendor/temml.js");
  const formula = createElement("span");
  const bounds = { trust: false, maxSize: [25, 25], maxExpand: 100 };
  temml.render(element.dataset.tex, formula, {
    displayMode: element.matches("p, [data-display]"),
    throwOnError: true, // then it stays as it was written
    ...bounds,
  });
  element.replaceChildren(formula);
}
