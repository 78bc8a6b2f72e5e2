// The console's Markdown in a page without a browser.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const PAGE = "<!doctype html><html><body></body></html>";

/** Load the console's markdown.js, and linkedom of the folder of packages; `require` is that folder's. */
export async function loadMarkdown(packages, module) {
  const require = createRequire(path.join(packages, "package.json"));
  const { parseHTML } = await import(pathToFileURL(require.resolve("linkedom")));
  const makeDocument = () => parseHTML(PAGE).document;
  Object.assign(globalThis, { document: makeDocument(), location: { href: "http://127.0.0.1/console/" } });
  const { Markdown } = await import(pathToFileURL(module));
  return { Markdown, makeDocument, require };
}

/** Draw the texts one after the other, as an answer grows; returns the element. */
export function draw(Markdown, texts) {
  const element = document.createElement("div");
  const markdown = new Markdown(element);
  for (const text of texts) markdown.draw(text);
  markdown.end();
  return element;
}
