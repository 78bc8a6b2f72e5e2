// The page Spend: the cost of model calls as a stacked bar for each day, and as tables.

import * as api from "../server/api.js";
import { createBarChart } from "../elements/bar_chart.js";
import { createElement } from "../elements/dom.js";
import { formatUsd } from "../elements/format.js";
import { createFrame, createSelect, createTable } from "../elements/page.js";
import { updatePageAddress } from "../navigation/address.js";
import { hasScope } from "./choices.js";

const GROUPS = { model: "Model", agent: "Agent", user: "User", key: "API key" };
const FIELDS = { agent: "agentKey" };
const RANGES = { 7: "7 days", 30: "30 days", 90: "90 days", 366: "a year" };
const SCOPES = { own: "you", tenant: "everyone in the tenant" };
const DEFAULTS = { by: "model", days: "30", of: "own" };

const SERIES_MAX = 6;
const OTHERS = "(others)";

const DAY_MS = 24 * 60 * 60 * 1000;

const countFormat = new Intl.NumberFormat();

const formatDay = (ms) => new Date(ms).toISOString().slice(0, 10);
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

function createSums(sums, total, head) {
  const createCells = (row) => [formatUsd(row.costNanoUsd ?? 0), ...["inputTokens", "outputTokens", "modelCalls"].map((part) => row[part] ?? 0)];
  const createSwatch = (series) => createElement("span", { class: `swatch series-${series}`, "aria-hidden": "true" });
  const createName = (name, series) => createElement("span", {}, createSwatch(series), name);
  const heads = [head, "Cost", "Tokens in", "Tokens out", "Calls"];
  const rows = sums.map((sum, index) => [createName(sum.name, Math.min(index, SERIES_MAX)), ...createCells(sum)]);
  const table = createTable("Sums", heads, [...rows, ["All", ...createCells(total ?? {})]]);
  table.querySelector("tr:last-child").className = "total";
  return table;
}

function createStats({ costNanoUsd = 0, inputTokens = 0, outputTokens = 0, modelCalls = 0 }) {
  const counts = [["Tokens in", inputTokens], ["Tokens out", outputTokens], ["Model calls", modelCalls]];
  const facts = [["Cost", formatUsd(costNanoUsd)], ...counts.map(([name, count]) => [name, countFormat.format(count)])];
  const stats = facts.map(([name, fact]) => createElement("div", {}, createElement("dt", {}, name), createElement("dd", {}, fact)));
  return createElement("dl", { class: "stats" }, ...stats);
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
      .sort((a, b) => a.series - b.series);
    return { label: day, parts };
  });
  const label = `${hasCost ? "Cost" : "Tokens"} by day, ${usage.fromDay} to ${usage.toDay}`;
  const caption = createElement("figcaption", {}, `${label} (UTC); total ${format(measure(usage.total ?? {}))}`);
  return { chart: createElement("figure", {}, createBarChart(label, bars, format), caption), days: createDays(label, bars, sums, format) };
}

/** Create the chart's table: a row for each day on which something was spent, a column for each series. */
function createDays(label, bars, sums, format) {
  const names = sums.slice(0, SERIES_MAX).map(({ name }) => name);
  if (sums.length > SERIES_MAX) names.push(OTHERS);
  const rows = bars
    .filter(({ parts }) => parts.length)
    .map(({ label: day, parts }) => {
      const values = names.map(() => 0);
      for (const { series, value } of parts) values[series] += value;
      return [day, ...values.map(format)];
    });
  return createElement(
    "details",
    {},
    createElement("summary", {}, "Show days as a table"),
    createTable(label, ["Day", ...names], rows),
  );
}

export function createPage() {
  const shown = createElement("div");
  const selects = {
    by: createSelect("By", GROUPS, DEFAULTS.by, changeAddress),
    days: createSelect("In", RANGES, DEFAULTS.days, changeAddress),
    of: createSelect("Of", SCOPES, DEFAULTS.of, changeAddress),
  };
  const { element, showProblem } = createFrame(
    {
      title: "Cost of model calls",
      tools: Object.values(selects).map((choice) => choice.element),
      className: "spend",
    },
    shown,
  );
  let asked = 0;
  hasScope("operate").then((isThere) => isThere || selects.of.select.querySelector("[value=tenant]").remove());

  function changeAddress() {
    const chosen = Object.entries(selects).map(([name, { select }]) => [name, select.value]);
    updatePageAddress("spend", Object.fromEntries(chosen.filter(([name, value]) => value !== DEFAULTS[name])));
    return load();
  }

  function show(parameters) {
    for (const [name, { select }] of Object.entries(selects)) {
      select.value = parameters[name] ?? DEFAULTS[name];
      if (!select.value) select.value = DEFAULTS[name];
    }
    return load();
  }

  async function load() {
    const number = ++asked;
    const group = selects.by.select.value;
    const days = Number(selects.days.select.value);
    showProblem(null);
    element.setAttribute("aria-busy", "true");
    try {
      const now = Date.now();
      const usage = await api.getUsage({
        groupBy: ["day", group],
        fromDay: formatDay(now - (days - 1) * DAY_MS),
        toDay: formatDay(now),
        scope: selects.of.select.value,
      });
      if (number === asked) showUsage(usage, group);
    } catch (error) {
      if (number !== asked) return;
      shown.replaceChildren();
      showProblem(error);
    } finally {
      if (number === asked) element.removeAttribute("aria-busy");
    }
  }

  function showUsage({ rows = [], ...rest }, group) {
    const field = FIELDS[group] ?? group;
    const usage = { ...rest, rows };
    const sums = sumByName(rows, field);
    if (!sums.length) return shown.replaceChildren(createElement("p", { class: "empty" }, "No spending in this period."));
    const { chart, days } = createChart(usage, sums, field);
    const cut = rest.isCut && createElement("p", {}, "Not everything is shown: choose fewer days.");
    return shown.replaceChildren(createStats(usage.total ?? {}), chart, createSums(sums, usage.total, GROUPS[group]), days, ...(cut ? [cut] : []));
  }

  return { element, show, hide() {} };
}
