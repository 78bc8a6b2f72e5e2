// Compares two texts line by line.

import { createElement } from "../elements/dom.js";

const LINES_MAX = 1500; // of what differs on each side: the table below has their product

/** Return the lines of both texts as [sign, line], sign "-", "+" or " "; null where too much differs to compare. */
export function diffLines(before, after) {
  const [one, other] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < Math.min(one.length, other.length) && one[start] === other[start]) start++;
  let end = 0;
  const left = Math.min(one.length, other.length) - start;
  while (end < left && one.at(-1 - end) === other.at(-1 - end)) end++;
  const olds = one.slice(start, one.length - end);
  const news = other.slice(start, other.length - end);
  if (olds.length > LINES_MAX || news.length > LINES_MAX) return null;
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(one.slice(0, start)), ...diffMiddle(olds, news), ...same(one.slice(one.length - end))];
}

/** Compare by the longest common subsequence. */
function diffMiddle(olds, news) {
  const lengths = Array.from({ length: olds.length + 1 }, () => new Uint16Array(news.length + 1));
  for (let i = olds.length - 1; i >= 0; i--)
    for (let j = news.length - 1; j >= 0; j--)
      lengths[i][j] =
        olds[i] === news[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < olds.length || j < news.length) {
    if (i < olds.length && j < news.length && olds[i] === news[j]) {
      found.push([" ", olds[i++]]);
      j++;
    } else if (j >= news.length || (i < olds.length && lengths[i + 1][j] >= lengths[i][j + 1])) found.push(["-", olds[i++]]);
    else found.push(["+", news[j++]]);
  }
  return found;
}

/** Create the element that shows the differing lines, with some equal lines around them. */
export function createDiff(before, after) {
  const lines = diffLines(before, after);
  if (lines === null) return createElement("p", {}, "Too many differences to show.");
  if (lines.every(([sign]) => sign === " ")) return createElement("p", {}, "No differences.");
  const tags = { "-": "del", "+": "ins", " ": "span" };
  const shown = lines.map(([sign, line]) => createElement(tags[sign], {}, `${sign} ${line}\n`));
  return createElement("pre", { class: "diff", tabindex: 0, role: "group", "aria-label": "Difference" }, ...shown);
}
