// The part of the page Providers that has the limits in force: what is used of each, who said it, when it opens.

import { createElement } from "../elements/dom.js";
import { formatDate, formatSeconds, formatSize } from "../elements/format.js";
import { createMark, createRow, createTable, replaceItems } from "../elements/page.js";
import * as api from "../server/api.js";

const NANO_PER_USD = 1e9;
const COLUMNS = ["limit", "used", "of", "per", "state", "set by"];

const countFormat = new Intl.NumberFormat();
const moneyFormat = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumFractionDigits: 4 });

export function createLimits() {
  const table = createTable("Limits", COLUMNS, []);
  const missing = createElement("p", { class: "about", hidden: true });
  const fullAlone = createElement("input", { type: "checkbox", onchange: draw });
  const element = createElement(
    "section",
    {},
    createElement("h3", {}, "Limits"),
    createElement("p", { class: "about" }, "The limits that apply to you, and how much your tenant has used."),
    createElement("label", { class: "choice" }, fullAlone, createElement("span", {}, "only full limits")),
    table,
    missing,
  );
  let limits = [];

  async function load() {
    const found = await api.getData("/api/operator/limits");
    limits = found.limits ?? [];
    missing.hidden = !found.missing?.length;
    missing.textContent = missing.hidden ? "" : `No answer from: ${found.missing.join(", ")}.`;
    draw();
  }

  function draw() {
    const shown = limits.filter(({ isFull }) => isFull || !fullAlone.checked);
    replaceItems(table.querySelector("tbody"), shown.map(createLimit));
  }

  return { element, load };
}

function createLimit(limit) {
  const { name, subject, unit, per, periodMs, source, sourceName } = limit;
  const period = periodMs ? ` in ${formatSeconds(periodMs)}` : "";
  return createRow([
    name.replaceAll("_", " ") + (subject ? ` ${subject}` : ""),
    formatNumber(limit.used, unit),
    limit.value === undefined ? "–" : formatNumber(limit.value, unit) + period,
    per,
    createState(limit),
    sourceName ? `${source}: ${sourceName}` : source,
  ]);
}

function createState({ isFull, opensAt }) {
  if (!isFull) return createMark("open", "good");
  const opens = opensAt ? createElement("small", {}, ` opens ${formatDate(opensAt)}`) : null;
  return createElement("span", {}, createMark("full", "bad"), opens);
}

function formatNumber(number, unit) {
  if (number === undefined) return "–";
  if (unit === "nano_usd") return moneyFormat.format(number / NANO_PER_USD);
  return unit === "bytes" ? formatSize(number) : `${countFormat.format(number)} ${unit}`;
}
