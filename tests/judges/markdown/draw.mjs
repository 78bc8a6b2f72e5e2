// Draws examples with the console's Markdown, and prints one JSON line for each: which words (letters and digits) of
// the reference are not shown. Arguments: the folder of packages, the console's markdown.js, a JSON file of examples, the first one's index.

import { readFileSync } from "node:fs";
import { draw, loadMarkdown } from "./page.mjs";

const [packages, module, examplesFile, first] = process.argv.slice(2);
const { Markdown, makeDocument, require } = await loadMarkdown(packages, module);

const examples = examplesFile ? JSON.parse(readFileSync(examplesFile)) : loadSpecification();

function loadSpecification() {
  const { tests } = require("commonmark-spec");
  return tests.map(({ number, section, markdown, html }) => {
    const document = makeDocument();
    document.body.innerHTML = html.replaceAll("→", "\t");
    return { name: `${number}, ${section}`, markdown: markdown.replaceAll("→", "\t"), text: document.body.textContent };
  });
}

// As an answer comes: in pieces, then whole.
function show(markdown) {
  const pieces = [];
  for (let end = 5; end < markdown.length; end += 5) pieces.push(markdown.slice(0, end));
  return draw(Markdown, [...pieces, markdown]).textContent;
}

for (const { name, markdown, text } of examples.slice(Number(first))) {
  process.stdout.write(`${JSON.stringify({ begins: name })}\n`);
  const shown = show(markdown);
  const missing = (text.match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => !shown.includes(word));
  process.stdout.write(`${JSON.stringify({ name, missing })}\n`);
}
