// Shows what model calls have cost: a dialog with a bar for each day, stacked, and the sums in a table.

import * as api from "../server/api.js";
import { createBarChart } from "../elements/bar_chart.js";
import { createButton, createElement } from "../elements/dom.js";

const GROUPS = { model: "model", agent: "agent", user: "user", key: "API key" };
const FIELDS = { agent: "agentKey" };
const RANGES = { 7: "7 days", 30: "30 days", 90: "90 days" };

const SERIES_MAX = 6;
const OTHERS = "(others)";

const NANO_PER_USD = 1_000_000_000;
const DAY_MS = 24 * 60 * 60 * 1000;

const countFormat = new Intl.NumberFormat();

const formatDay = (ms) => new Date(ms).toISOString().slice(0, 10);
const formatUsd = (nanoUsd) => `$${(nanoUsd / NANO_PER_USD).toFixed(4)}`;
const sumTokens = (row) => (row.inputTokens ?? 0) + (row.outputTokens ?? 0);

function listDays(first, last) {
  const days = [];
  for (let at = Date.parse(first); at <= Date.parse(last); at += DAY_MS) days.push(formatDay(at));
  return days;
}

/** Sum rows up by name, the dearest first. */
function sumByName(rows, field) {
  const sums = new Map();
  for (const row of rows) {
    const name = row[field] || "–";
    const sum = sums.get(name) ?? { name, costNanoUsd: 0, inputTokens: 0, outputTokens: 0, modelCalls: 0 };
    for (const part of ["costNanoUsd", "inputTokens", "outputTokens", "modelCalls"]) sum[part] += row[part] ?? 0;
    sums.set(name, sum);
  }
  return [...sums.values()].sort((a, b) => b.costNanoUsd - a.costNanoUsd || sumTokens(b) - sumTokens(a));
}

function createSelect(label, options, chosen, onchange) {
  const select = createElement(
    "select",
    { onchange },
    ...Object.entries(options).map(([value, text]) => createElement("option", { value }, text)),
  );
  select.value = chosen;
  return { select, element: createElement("label", { class: "pick" }, createElement("span", {}, label), " ", select) };
}

function createTable(sums, total, head) {
  const cells = (row) => [
    formatUsd(row.costNanoUsd ?? 0),
    ...["inputTokens", "outputTokens", "modelCalls"].map((part) => countFormat.format(row[part] ?? 0)),
  ];
  const createRow = (row, series) =>
    createElement(
      "tr",
      {},
      createElement(
        "th",
        { scope: "row" },
        series === null ? null : createElement("span", { class: `swatch series-${series}`, "aria-hidden": "true" }),
        row.name,
      ),
      ...cells(row).map((cell) => createElement("td", {}, cell)),
    );
  return createElement(
    "table",
    {},
    createElement(
      "thead",
      {},
      createElement(
        "tr",
        {},
        ...[head, "cost", "tokens in", "out", "calls"].map((name) => createElement("th", { scope: "col" }, name)),
      ),
    ),
    createElement("tbody", {}, ...sums.map((sum, index) => createRow(sum, Math.min(index, SERIES_MAX)))),
    createElement("tfoot", {}, createRow({ ...total, name: "all" }, null)),
  );
}

function createChart(usage, sums, field) {
  // Without prices there is no cost to show, but tokens.
  const hasCost = (usage.total?.costNanoUsd ?? 0) > 0;
  const measure = hasCost ? (row) => row.costNanoUsd ?? 0 : sumTokens;
  const format = hasCost ? formatUsd : (tokens) => `${countFormat.format(tokens)} tokens`;
  const series = new Map(sums.map(({ name }, index) => [name, Math.min(index, SERIES_MAX)]));
  const bars = listDays(usage.fromDay, usage.toDay).map((day) => {
    const parts = usage.rows
      .filter((row) => row.day === day)
      .map((row) => ({ series: series.get(row[field] || "–"), value: measure(row), name: row[field] || "–" }))
      .sort((a, b) => a.series - b.series)
      .map(({ name, ...part }) => ({
        ...part,
        title: `${part.series < SERIES_MAX ? name : `${name} ${OTHERS}`} · ${format(part.value)}`,
      }));
    return { label: day, parts };
  });
  const label = `${hasCost ? "Cost" : "Tokens"} by day, ${usage.fromDay} to ${usage.toDay}`;
  return createElement(
    "figure",
    {},
    createBarChart(label, bars),
    createElement("figcaption", {}, `${label} (UTC); together ${format(measure(usage.total ?? {}))}`),
  );
}

/** Open the dialog with the caller's last 30 days. */
export async function openSpend() {
  const shown = createElement("div", { class: "table" });
  const problem = createElement("p", { class: "problem", role: "alert", hidden: true });
  const by = createSelect("By", GROUPS, "model", load);
  const range = createSelect("In", RANGES, "30", load);
  const whose = createSelect("Of", { own: "you", tenant: "everybody in the tenant" }, "own", load);
  const dialog = createElement(
    "dialog",
    { "aria-labelledby": "spend-title", class: "spend" },
    createElement("h2", { id: "spend-title" }, "What model calls have cost"),
    createElement("div", { class: "actions" }, by.element, range.element, whose.element),
    problem,
    shown,
    createElement("div", { class: "actions" }, createButton("Close", () => dialog.close())),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  let asked = 0;

  async function load() {
    const number = ++asked;
    const group = by.select.value;
    const days = Number(range.select.value);
    problem.hidden = true;
    try {
      const now = Date.now();
      const usage = await api.getUsage({
        groupBy: ["day", group],
        fromDay: formatDay(now - (days - 1) * DAY_MS),
        toDay: formatDay(now),
        scope: whose.select.value,
      });
      if (number === asked) show(usage, group);
    } catch (error) {
      if (number !== asked) return;
      shown.replaceChildren();
      problem.textContent = error.message;
      problem.hidden = false;
    }
  }

  function show({ rows = [], ...rest }, group) {
    const field = FIELDS[group] ?? group;
    const usage = { ...rest, rows };
    const sums = sumByName(rows, field);
    if (!sums.length) return shown.replaceChildren(createElement("p", {}, "Nothing was spent in these days."));
    const cut = rest.isCut && createElement("p", {}, "There is more than is shown: choose fewer days.");
    shown.replaceChildren(
      createChart(usage, sums, field),
      createTable(sums, usage.total, GROUPS[group]),
      ...(cut ? [cut] : []),
    );
  }

  await load();
}
