// Draws random Markdown whole and in random pieces, and prints where the two differ or take long. Arguments: the folder
// of packages, the console's markdown.js, how many texts, the seed.

import { draw, loadMarkdown } from "./page.mjs";

const [packages, module, count, seed] = process.argv.slice(2);
const { Markdown } = await loadMarkdown(packages, module);

const PARTS = [
  "a", "b c", "\n", "\n\n", " ", "    ", "\t", "*", "**", "_", "__", "~~", "`", "```", "~~~", "[", "]", "(", ")", "[x]",
  "[[1]](https://e.x)", "![", "<", "<b>", "</b>", "<!--", "-->", "&amp;", "&#0;", "|", "|-|", "> ", "- ", "1. ", "# ",
  "===", "---", "\\", "https://a.b/c_d", "[r]: /u", "[r]", "- [ ] ", "\r\n", "\u0000", "😀", "'", '"', "a@b.c",
  "$", "$$", "\\(", "\\)", "\\[", "\\]",
]; // prettier-ignore
const SLOW_MS = 2000;

let state = Number(seed);
function pick(below) {
  state = (state * 1103515245 + 12345) & 0x7fffffff;
  return Math.floor((state / 0x80000000) * below);
}

for (let number = 0; number < Number(count); number += 1) {
  const text = Array.from({ length: 1 + pick(25) }, () => PARTS[pick(PARTS.length)]).join("");
  const pieces = [];
  for (let end = 1; end < text.length; end += 1 + pick(4)) pieces.push(text.slice(0, end));
  await null; // what waits for the last text runs
  const before = performance.now();
  const isSame = draw(Markdown, [text]).innerHTML === draw(Markdown, [...pieces, text]).innerHTML;
  if (!isSame || performance.now() - before > SLOW_MS) process.stdout.write(`${JSON.stringify(text)}\n`);
}
