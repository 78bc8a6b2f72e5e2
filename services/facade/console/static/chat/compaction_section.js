// Shows what a compaction did: what it replaced, what its writer saw, what it cost, what it kept word for word.

import { createElement } from "../elements/dom.js";
import { formatCompaction, formatCount, formatDate, formatUsage, shortenText } from "../elements/format.js";

const PINNED_CHARS_MAX = 120;

const numberFormat = new Intl.NumberFormat();
const percentFormat = new Intl.NumberFormat(undefined, { style: "percent" });

/** Create the section about the compaction before a window. */
export function createCompactionSection(compaction) {
  const { receipt, sections = [] } = compaction;
  const facts = [
    describeMoment(compaction),
    formatCompaction(compaction),
    ...(receipt ? describeReceipt(receipt) : []),
  ];
  const list = createElement("ul", {}, ...facts.map((fact) => createElement("li", {}, fact)));
  return createElement(
    "section",
    { class: "compaction" },
    createElement("h3", {}, "Last compaction"),
    list,
    receipt?.pinned?.length ? createPinnedList(receipt.pinned) : "",
    sections.length ? createSectionTable(sections) : "",
  );
}

function describeMoment({ runId, trigger, strategy, isEdited, createdAt }) {
  const parts = [formatDate(createdAt), trigger === "manual" ? "manual" : "automatic"];
  parts.push(runId ? "in a run" : "between runs");
  if (strategy === "fallback") parts.push("no summary could be made");
  if (isEdited) parts.push("edited since");
  return parts.join(" · ");
}

function describeReceipt(receipt) {
  const { firstLine, lastLine, coveredTokens, seenTokens, unseen = [], usage, cachedRatio } = receipt;
  const counts = receipt.replacedMessages
    ? `, ${formatCount(receipt.replacedMessages, "message")}; ${numberFormat.format(receipt.keptMessages)} stay`
    : "";
  const ranges = unseen.map((lines) => `${lines.firstLine}–${lines.lastLine}`).join(", ");
  const facts = [
    `It covers lines ${firstLine} to ${lastLine}${counts}`,
    `The summarising model saw ${numberFormat.format(seenTokens)} of ${formatCount(coveredTokens, "token")}` +
      (ranges ? `; not all of lines ${ranges}` : ""),
  ];
  if (usage) {
    const cached = cachedRatio === undefined ? "" : ` · ${percentFormat.format(cachedRatio)} cached`;
    facts.push(`It cost ${formatUsage(usage)}${cached}`);
  }
  return facts;
}

function createPinnedList(pinned) {
  const items = pinned.map((item) => createElement("li", {}, shortenText(item, PINNED_CHARS_MAX)));
  const title = createElement("summary", {}, `Kept word for word: ${formatCount(pinned.length, "item")}`);
  return createElement("details", {}, title, createElement("ul", {}, ...items));
}

function createSectionTable(sections) {
  const rows = sections.map(({ title, tokens }) =>
    createElement(
      "tr",
      {},
      createElement("th", { scope: "row" }, title || "Text"),
      createElement("td", {}, formatCount(tokens, "token")),
    ),
  );
  const name = createElement("summary", {}, "Sections of the summary");
  return createElement("details", {}, name, createElement("table", {}, createElement("tbody", {}, ...rows)));
}
