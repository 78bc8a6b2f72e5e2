// Creates the parts that all pages share: a heading, tools, tables, and a place for problems.

import { createElement } from "./dom.js";

/** Create a page's frame; `showProblem(error)` shows a failure, and without one takes it back. */
export function createFrame({ title, about, tools = [], className = "" }, ...children) {
  const problem = createElement("p", { class: "problem", role: "alert", hidden: true });
  const element = createElement(
    "section",
    { class: `page ${className}` },
    createElement("h2", { tabindex: -1 }, title),
    about ? createElement("p", { class: "about" }, about) : null,
    tools.length ? createElement("div", { class: "actions tools" }, ...tools) : null,
    problem,
    ...children,
  );
  const showProblem = (error) => {
    problem.hidden = !error;
    problem.textContent = error ? error.message : "";
  };
  return { element, showProblem };
}

/** Create a choice of `options`, an object of labels by value, with its label before it. */
export function createSelect(label, options, chosen, onchange) {
  const select = createElement(
    "select",
    { onchange },
    ...Object.entries(options).map(([value, text]) => createElement("option", { value }, text)),
  );
  select.value = chosen;
  return { select, element: createElement("label", {}, createElement("span", {}, label), select) };
}

// Roles are named because a narrow window shows rows as cards, for which browsers would forget them.
const createCell = (cell, label) =>
  createElement("td", { role: "cell", "data-label": label, class: findClass(cell) }, formatCell(cell));

const SHORT_CHARS_MAX = 24; // a longer text wraps
const findClass = (cell) => (typeof cell !== "string" ? typeof cell : cell.length <= SHORT_CHARS_MAX ? "short" : "long");

const countFormat = new Intl.NumberFormat();
const formatCell = (cell) => (typeof cell === "number" ? countFormat.format(cell) : (cell ?? ""));

/** Create a row of a table; the first cell is its name, and numbers end at the right. */
export const createRow = ([name, ...cells], columns = []) =>
  createElement(
    "tr",
    { role: "row" },
    createElement("th", { scope: "row", role: "rowheader", class: findClass(name) }, name),
    ...cells.map((cell, index) => createCell(cell, columns[index + 1])),
  );

/** Create a table with a row of column names; rows are lists of cells, of which the first is the row's name. */
export function createTable(label, columns, rows) {
  const head = columns.map((name) =>
    name ? createElement("th", { scope: "col", role: "columnheader" }, name) : createElement("td", { role: "cell" }),
  );
  return createElement(
    "div",
    { class: "table", tabindex: 0, role: "region", "aria-label": label },
    createElement(
      "table",
      { role: "table" },
      createElement("thead", { role: "rowgroup" }, createElement("tr", { role: "row" }, ...head)),
      createElement("tbody", { role: "rowgroup" }, ...rows.map((row) => createRow(row, columns))),
    ),
  );
}

/** Create a list of terms with their facts; facts that are missing are left out. */
export function createFacts(facts) {
  const shown = facts.filter(([, fact]) => fact !== undefined && fact !== null && fact !== "");
  const parts = shown.flatMap(([term, fact]) => [createElement("dt", {}, term), createElement("dd", {}, fact)]);
  return createElement("dl", {}, ...parts);
}

/** Create a field of a form with its label; `hint` describes its value. */
export function createField(label, input, hint) {
  return createElement("label", {}, label, hint ? createElement("small", {}, hint) : null, input);
}

/** Put `items` into `list`; the focus stays on the element with the same data-focus, or moves to `fallback`. */
export function replaceItems(list, items, fallback) {
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  list.replaceChildren(...items);
  if (focused === undefined) return;
  const next = [...list.querySelectorAll("[data-focus]")].find((element) => element.dataset.focus === focused);
  (next ?? fallback)?.focus({ preventScroll: true });
}

/** Create a word about a state, such as paused. */
export const createMark = (text, kind = "") => createElement("span", { class: `mark ${kind}` }, text);
