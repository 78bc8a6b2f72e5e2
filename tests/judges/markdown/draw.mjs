// Draws examples with the console's Markdown, and prints one JSON line for each: which words (letters and digits) of
// the reference are not shown. Arguments: the folder of packages, the console's markdown.js, a JSON file of examples, the first one's index.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [packages, module, examplesFile, first] = process.argv.slice(2);
const require = createRequire(path.join(packages, "package.json"));
const { parseHTML } = await import(pathToFileURL(require.resolve("linkedom")));

const page = "<!doctype html><html><body></body></html>";
Object.assign(globalThis, { document: parseHTML(page).document, location: { href: "http://127.0.0.1/console/" } });
const { Markdown } = await import(pathToFileURL(module));

const examples = examplesFile ? JSON.parse(readFileSync(examplesFile)) : loadSpecification();

function loadSpecification() {
  const { tests } = require("commonmark-spec");
  return tests.map(({ number, section, markdown, html }) => {
    const { document } = parseHTML(page);
    document.body.innerHTML = html.replaceAll("→", "\t");
    return { name: `${number}, ${section}`, markdown: markdown.replaceAll("→", "\t"), text: document.body.textContent };
  });
}

// As an answer comes: in pieces, then whole.
function draw(markdown) {
  const element = document.createElement("div");
  const drawn = new Markdown(element);
  for (let end = 5; end < markdown.length; end += 5) drawn.draw(markdown.slice(0, end));
  drawn.draw(markdown);
  drawn.end();
  return element.textContent;
}

for (const { name, markdown, text } of examples.slice(Number(first))) {
  process.stdout.write(`${JSON.stringify({ begins: name })}\n`);
  const shown = draw(markdown);
  const missing = (text.match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => !shown.includes(word));
  process.stdout.write(`${JSON.stringify({ name, missing })}\n`);
}
