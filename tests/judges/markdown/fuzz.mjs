// Draws random Markdown whole and in random pieces, and prints where the two differ or take long. Arguments: the folder
// of packages, the console's markdown.js, how many texts, the seed.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [packages, module, count, seed] = process.argv.slice(2);
const require = createRequire(path.join(packages, "package.json"));
const { parseHTML } = await import(pathToFileURL(require.resolve("linkedom")));
const page = "<!doctype html><html><body></body></html>";
Object.assign(globalThis, { document: parseHTML(page).document, location: { href: "http://127.0.0.1/console/" } });
const { Markdown } = await import(pathToFileURL(module));

const PARTS = [
  "a", "b c", "\n", "\n\n", " ", "    ", "\t", "*", "**", "_", "__", "~~", "`", "```", "~~~", "[", "]", "(", ")", "[x]",
  "[[1]](https://e.x)", "![", "<", "<b>", "</b>", "<!--", "-->", "&amp;", "&#0;", "|", "|-|", "> ", "- ", "1. ", "# ",
  "===", "---", "\\", "https://a.b/c_d", "[r]: /u", "[r]", "- [ ] ", "\r\n", "\u0000", "😀", "'", '"', "a@b.c",
]; // prettier-ignore
const SLOW_MS = 2000;

let state = Number(seed);
function pick(below) {
  state = (state * 1103515245 + 12345) & 0x7fffffff;
  return Math.floor((state / 0x80000000) * below);
}

function draw(pieces) {
  const element = document.createElement("div");
  const markdown = new Markdown(element);
  for (const text of pieces) markdown.draw(text);
  markdown.end();
  return element.innerHTML;
}

for (let number = 0; number < Number(count); number += 1) {
  const text = Array.from({ length: 1 + pick(25) }, () => PARTS[pick(PARTS.length)]).join("");
  const pieces = [];
  for (let end = 1; end < text.length; end += 1 + pick(4)) pieces.push(text.slice(0, end));
  const before = performance.now();
  const isSame = draw([text]) === draw([...pieces, text]);
  if (!isSame || performance.now() - before > SLOW_MS) process.stdout.write(`${JSON.stringify(text)}\n`);
}
