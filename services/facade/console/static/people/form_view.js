// A form for what a person is asked: fields from a JSON schema, a question with choices, or plain JSON.

import { button, h } from "../elements/dom.js";
import { parse, pretty } from "../server/json.js";
import { sending } from "./submission.js";

/** A form for the frontend tool's view (JSON, or null when it has none); `submit(payload)` sends it. */
export function form(toolName, view, params, submit) {
  if (toolName === "ask_human") return questionForm(params ?? {}, submit);
  const schema = view?.type === "object" && view.properties ? view : null;
  return schema ? schemaForm(schema, params ?? {}, submit) : jsonForm(view, params, submit);
}

let questions = 0; // on this page: an id for each answer

function wired(fields, read, submit) {
  const problem = h("p", { role: "alert", class: "problem" });
  const actions = h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Send"));
  const fieldset = h("fieldset", {}, ...fields, actions, problem);
  const onsubmit = (event) => {
    event.preventDefault();
    let payload;
    try {
      payload = read();
    } catch (error) {
      problem.textContent = error.message;
      return;
    }
    sending(fieldset, problem, () => submit(payload));
  };
  return h("form", { class: "form", onsubmit }, fieldset);
}

function questionForm({ question = "", context, choices = [], default: preset = "", required = true }, submit) {
  const id = `answer-${(questions += 1)}`;
  const answer = h("textarea", { id, rows: 2, required });
  answer.value = preset;
  const picks = choices.map((choice) => button(choice, () => (answer.value = choice)));
  const fields = [
    h("label", { for: id }, question),
    context ? h("p", {}, context) : null,
    choices.length ? h("div", { class: "choices", role: "group", "aria-label": "Choices" }, ...picks) : null,
    answer,
  ];
  return wired(fields, () => ({ answer: answer.value }), submit);
}

function schemaForm(schema, params, submit) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, property]) =>
    field(name, property, params[name] ?? property.default, required.has(name)),
  );
  const head = [schema.title && h("h3", {}, schema.title), schema.description && h("p", {}, schema.description)];
  const read = () => {
    const given = fields.map(({ name, value }) => [name, value()]);
    return Object.fromEntries(given.filter(([, value]) => value !== undefined));
  };
  return wired([...head.filter(Boolean), ...fields.map(({ element }) => element)], read, submit);
}

/** One property: its element, and `value()`, undefined when it was left empty. */
function field(name, property, preset, required) {
  const label = property.title ?? name;
  const attributes = { name, required };
  if (property.enum) return choiceField(name, label, property, preset, attributes);
  if (property.type === "boolean") return checkField(name, label, property, preset);
  if (property.type === "number" || property.type === "integer") {
    return numberField(name, label, property, preset, attributes);
  }
  const isText = property.type === "string";
  const isShort = isText && !(property.maxLength > 200);
  const input = h(isShort ? "input" : "textarea", { ...attributes, maxlength: property.maxLength });
  if (preset !== undefined) input.value = isText ? preset : pretty(preset);
  const value = () => (input.value === "" ? undefined : isText ? input.value : parseField(label, input.value));
  return { name, value, element: labelled(label, property, input) };
}

function numberField(name, label, property, preset, attributes) {
  const { type, minimum: min, maximum: max } = property;
  const input = h("input", { ...attributes, type: "number", step: type === "integer" ? 1 : "any", min, max });
  input.value = preset ?? "";
  const value = () => (input.value === "" ? undefined : parseField(label, input.value));
  return { name, value, element: labelled(label, property, input) };
}

function parseField(label, text) {
  try {
    return parse(text);
  } catch {
    throw new Error(`${label}: must be valid JSON`);
  }
}

function choiceField(name, label, property, preset, attributes) {
  const options = property.enum.map((value, index) =>
    h(
      "option",
      { value: index, selected: value === preset },
      typeof value === "string" ? value : JSON.stringify(value),
    ),
  );
  const empty = h("option", { value: "", selected: preset === undefined }, "Choose…");
  const select = h("select", attributes, empty, ...options);
  const value = () => (select.value === "" ? undefined : property.enum[Number(select.value)]);
  return { name, value, element: labelled(label, property, select) };
}

function checkField(name, label, property, preset) {
  const input = h("input", { type: "checkbox", name, checked: preset === true });
  const hint = property.description ? h("small", {}, property.description) : null;
  return { name, value: () => input.checked, element: h("label", { class: "check" }, input, label, hint) };
}

function labelled(label, property, input) {
  return h("label", {}, label, property.description ? h("small", {}, property.description) : null, input);
}

function jsonForm(view, params, submit) {
  const shown = view ?? params;
  const answer = h("textarea", { rows: 5, spellcheck: "false", required: true });
  answer.value = "{}";
  const read = () => parseField("Answer", answer.value);
  const about = shown ? h("pre", { tabindex: "0", role: "group", "aria-label": "What is asked" }, pretty(shown)) : null;
  return wired([about, h("label", {}, "Answer (JSON)", answer)], read, submit);
}
