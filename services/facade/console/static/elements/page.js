// Creates what all pages beside the chats have: a heading, tools, a place for problems.

import { createElement } from "./dom.js";

/** Create a page's frame; `showProblem(error)` tells a failure, without one it is taken back. */
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

/** Create what does something on a page and then loads it anew, or shows the problem. */
export function createAttempt(showProblem, load) {
  return async (act) => {
    showProblem(null);
    try {
      await act();
      await load();
    } catch (error) {
      showProblem(error);
    }
  };
}

/** Create a choice of `options`, an object of labels by value, with its label before it. */
export function createSelect(label, options, chosen, onchange) {
  const select = createElement(
    "select",
    { onchange },
    ...Object.entries(options).map(([value, text]) => createElement("option", { value }, text)),
  );
  select.value = chosen;
  return { select, element: createElement("label", { class: "choice" }, createElement("span", {}, label), select) };
}

/** Create a row of a table; the first cell is its name. */
export const createRow = ([name, ...cells]) =>
  createElement(
    "tr",
    {},
    createElement("th", { scope: "row" }, name),
    ...cells.map((cell) => createElement("td", {}, cell ?? "")),
  );

/** Create a table with a row of column names; rows are lists of cells, of which the first is the row's name. */
export function createTable(label, columns, rows) {
  const head = columns.map((name) =>
    name ? createElement("th", { scope: "col" }, name) : createElement("td"),
  );
  return createElement(
    "div",
    { class: "table", tabindex: 0, role: "region", "aria-label": label },
    createElement(
      "table",
      {},
      createElement("thead", {}, createElement("tr", {}, ...head)),
      createElement("tbody", {}, ...rows.map(createRow)),
    ),
  );
}

/** Create a field of a form with its label; `hint` says what it takes. */
export function createField(label, input, hint) {
  return createElement("label", {}, label, hint ? createElement("small", {}, hint) : null, input);
}

/** Create a form that is folded away; what `submit()` throws is shown in it, and it is emptied when that went well. What
 * `submit()` returns is called when the form is folded again, so that what it shows is not moved out of sight. */
export function createFoldedForm(title, fields, label, submit) {
  const problem = createElement("p", { class: "problem", role: "alert" });
  const button = createElement("button", { type: "submit", class: "primary" }, label);
  const fieldset = createElement(
    "fieldset",
    {},
    ...fields,
    createElement("div", { class: "actions" }, button),
    problem,
  );
  const onsubmit = async (event) => {
    event.preventDefault();
    problem.textContent = "";
    fieldset.disabled = true;
    try {
      const finish = await submit();
      form.reset();
      folded.open = false;
      await finish?.();
    } catch (error) {
      problem.textContent = error.message;
    } finally {
      fieldset.disabled = false;
    }
  };
  const form = createElement("form", { class: "form", onsubmit }, fieldset);
  const folded = createElement("details", { class: "folded" }, createElement("summary", {}, title), form);
  return folded;
}

/** Put `items` into `list`; the focus stays on what has the same data-focus, or goes to `fallback`. */
export function replaceItems(list, items, fallback) {
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  list.replaceChildren(...items);
  if (focused === undefined) return;
  const next = [...list.querySelectorAll("[data-focus]")].find((element) => element.dataset.focus === focused);
  (next ?? fallback)?.focus({ preventScroll: true });
}

/** Create a word about a state, such as paused. */
export const createMark = (text, kind = "") => createElement("span", { class: `mark ${kind}` }, text);
