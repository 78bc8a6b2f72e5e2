// Parses Markdown into blocks, line by line. A block only grows at its end, so all blocks but the last are final while
// the text is still arriving. Anything unknown is a paragraph; HTML is text.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const MARK_CHARS_MAX = 2000; // in a line of marks alone: a pattern that repeats groups can run out of stack
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])( +(?=\S)|[ \t]*$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Return the blocks of `text`; `start` is the line at which each begins. */
export function parseBlocks(text) {
  return parseLines(text.split("\n"));
}

export function parseLines(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = readBlock(lines, at);
    blocks.push({ ...block, start: at });
    at = block.next;
  }
  return blocks;
}

/** Read the block at a line. The order of the readers matters: `* * *` is a rule and not a list. */
function readBlock(lines, at) {
  for (const read of [readCode, readHeading, readRule, readQuote, readList, readTable]) {
    const block = read(lines, at);
    if (block) return block;
  }
  return readParagraph(lines, at);
}

function readCode(lines, at) {
  const opening = FENCE.exec(lines[at]);
  if (!opening) return null;
  const [, fence, language] = opening;
  const isClosing = (line) => line.trimStart().startsWith(fence) && !line.trim().replaceAll(fence[0], "");
  let next = at + 1;
  while (next < lines.length && !isClosing(lines[next])) next += 1;
  return { kind: "code", language, text: lines.slice(at + 1, next).join("\n"), next: next + 1 };
}

function readHeading(lines, at) {
  const match = HEADING.exec(lines[at]);
  return match && { kind: "heading", level: match[1].length, text: match[2] ?? "", next: at + 1 };
}

const isRule = (line) => line.length <= MARK_CHARS_MAX && RULE.test(line);
const isTableRule = (line) => line.length <= MARK_CHARS_MAX && TABLE_RULE.test(line);

function readRule(lines, at) {
  return isRule(lines[at]) ? { kind: "rule", next: at + 1 } : null;
}

function readQuote(lines, at) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next += 1;
  if (next === at) return null;
  return { kind: "quote", lines: lines.slice(at, next).map((line) => line.replace(QUOTE, "")), next };
}

function readList(lines, at) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const isOrdered = first[3] !== undefined;
  const items = [];
  let next = at;
  while (next < lines.length) {
    const item = isRule(lines[next]) ? null : ITEM.exec(lines[next]);
    const isSibling = item && item[1].length < first[1].length + 2 && (item[3] !== undefined) === isOrdered;
    if (isSibling) items.push({ lines: [lines[next].slice(item[0].length)], width: item[0].length, indent: 0 });
    else if (continuesItem(lines, next)) items.at(-1).lines.push(removeItemIndent(items.at(-1), lines[next]));
    else break;
    next += 1;
  }
  const firstNumber = isOrdered ? Number(first[3]) : 1;
  return { kind: "list", isOrdered, firstNumber, items: items.map((item) => item.lines), next };
}

/** Remove the indent of the item's first indented line, since models often indent by too little. */
function removeItemIndent(item, line) {
  const indent = /^ */.exec(line.replace(/^\t/, "    "))[0].length;
  item.indent ||= line.trim() ? Math.min(indent, item.width) : 0;
  return line.replace(/^\t/, "    ").slice(Math.min(indent, item.indent));
}

/** Tell whether a line that begins no item continues the one before: indented, or text right after text. */
function continuesItem(lines, at) {
  const line = lines[at];
  if (!line.trim()) {
    const following = lines.slice(at, at + 3).find((later) => later.trim());
    return following === undefined || /^(?: {2}|\t)/.test(following) || ITEM.test(following);
  }
  if (/^(?: {2}|\t)/.test(line)) return true;
  return Boolean(lines[at - 1].trim()) && !beginsBlock(line);
}

function readTable(lines, at) {
  if (!lines[at].includes("|") || !isTableRule(lines[at + 1] ?? "")) return null;
  const header = splitCells(lines[at]);
  const rules = splitCells(lines[at + 1]);
  if (header.length !== rules.length) return null;
  const alignments = rules.map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "end") : "start"));
  let next = at + 2;
  while (next < lines.length && lines[next].trim() && lines[next].includes("|")) next += 1;
  const rows = lines.slice(at + 2, next).map((line) => header.map((_, column) => splitCells(line)[column] ?? ""));
  return { kind: "table", header, alignments, rows, next };
}

function splitCells(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function readParagraph(lines, at) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim() && !beginsBlock(lines[next]) && !readTable(lines, next)) next += 1;
  return { kind: "paragraph", text: lines.slice(at, next).join("\n"), next };
}

function beginsBlock(line) {
  return isRule(line) || [FENCE, HEADING, QUOTE, ITEM].some((pattern) => pattern.test(line));
}
