// Creates the form that a person answers: fields from a JSON schema, a question with choices, or plain JSON.

import { createButton, createElement } from "../elements/dom.js";
import { parseJson } from "../client/json.js";
import { showText } from "../elements/shown_text.js";
import { formatJson } from "../server/json.js";
import { submitForm } from "./submission.js";

/** Create a form for a frontend tool's view (JSON, or null when it has none); `submit(payload)` sends the answer. */
export function createForm(toolName, view, params, submit) {
  if (toolName === "ask_human") return createQuestionForm(params ?? {}, submit);
  const schema = view?.type === "object" && view.properties ? view : null;
  return schema ? createSchemaForm(schema, params ?? {}, submit) : createJsonForm(view, params, submit);
}

let questionCount = 0; // on this page, for the ids of the answers

function buildForm(fields, read, submit) {
  const problem = createElement("p", { role: "alert", class: "problem" });
  const actions = createElement(
    "div",
    { class: "actions" },
    createElement("button", { type: "submit", class: "primary" }, "Submit"),
  );
  const fieldset = createElement("fieldset", {}, ...fields, actions, problem);
  const onsubmit = (event) => {
    event.preventDefault();
    let payload;
    try {
      payload = read();
    } catch (error) {
      problem.textContent = error.message;
      return;
    }
    submitForm(fieldset, problem, () => submit(payload));
  };
  return createElement("form", { class: "form", onsubmit }, fieldset);
}

function createQuestionForm({ question = "", context, choices = [], default: preset = "", required = true }, submit) {
  const id = `answer-${(questionCount += 1)}`;
  // One of the choices alone is accepted.
  const answer = createElement("textarea", { id, rows: 2, required, readOnly: choices.length > 0 });
  answer.value = preset;
  const choiceButtons = choices.map((choice) => createButton(showText(choice), () => (answer.value = choice)));
  const fields = [
    createElement("label", { for: id }, showText(question)),
    context ? createElement("p", {}, showText(context)) : null,
    choices.length
      ? createElement("div", { class: "choices", role: "group", "aria-label": "Choices" }, ...choiceButtons)
      : null,
    answer,
  ];
  return buildForm(fields, () => ({ answer: answer.value }), submit);
}

function createSchemaForm(schema, params, submit) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, property]) =>
    createField(name, property, params[name] ?? property.default, required.has(name)),
  );
  const head = [
    schema.title && createElement("h3", {}, showText(schema.title)),
    schema.description && createElement("p", {}, showText(schema.description)),
  ];
  const read = () => {
    const entries = fields.map(({ name, value }) => [name, value()]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  };
  return buildForm([...head.filter(Boolean), ...fields.map(({ element }) => element)], read, submit);
}

/** Create a property's element and `value()`, which returns undefined for an empty field. */
function createField(name, property, preset, required) {
  const label = showText(property.title ?? name);
  const attributes = { name, required };
  if (property.enum) return createChoiceField(name, label, property, preset, attributes);
  if (property.type === "boolean") return createCheckField(name, label, property, preset);
  if (property.type === "number" || property.type === "integer") {
    return createNumberField(name, label, property, preset, attributes);
  }
  const isText = property.type === "string";
  const isShort = isText && !(property.maxLength > 200);
  const input = createElement(isShort ? "input" : "textarea", { ...attributes, maxlength: property.maxLength });
  if (preset !== undefined) input.value = isText ? preset : formatJson(preset);
  const value = () => (input.value === "" ? undefined : isText ? input.value : parseField(label, input.value));
  return { name, value, element: createLabel(label, property, input) };
}

function createNumberField(name, label, property, preset, attributes) {
  const { type, minimum: min, maximum: max } = property;
  const input = createElement("input", {
    ...attributes,
    type: "number",
    step: type === "integer" ? 1 : "any",
    min,
    max,
  });
  input.value = preset ?? "";
  const value = () => (input.value === "" ? undefined : parseField(label, input.value));
  return { name, value, element: createLabel(label, property, input) };
}

function parseField(label, text) {
  try {
    return parseJson(text);
  } catch {
    throw new Error(`${label}: must be valid JSON`);
  }
}

function createChoiceField(name, label, property, preset, attributes) {
  const options = property.enum.map((value, index) =>
    createElement(
      "option",
      { value: index, selected: value === preset },
      showText(typeof value === "string" ? value : JSON.stringify(value)),
    ),
  );
  const empty = createElement("option", { value: "", selected: preset === undefined }, "Choose…");
  const select = createElement("select", attributes, empty, ...options);
  const value = () => (select.value === "" ? undefined : property.enum[Number(select.value)]);
  return { name, value, element: createLabel(label, property, select) };
}

function createCheckField(name, label, property, preset) {
  const input = createElement("input", { type: "checkbox", name, checked: preset === true });
  const hint = createHint(property);
  return { name, value: () => input.checked, element: createElement("label", { class: "check" }, input, label, hint) };
}

const createHint = ({ description }) =>
  description ? createElement("small", {}, showText(description)) : null;

function createLabel(label, property, input) {
  return createElement(
    "label",
    {},
    label,
    createHint(property),
    input,
  );
}

function createJsonForm(view, params, submit) {
  const subject = view ?? params;
  const answer = createElement("textarea", { rows: 5, spellcheck: "false", required: true });
  answer.value = "{}";
  const read = () => parseField("Answer", answer.value);
  const about = subject
    ? createElement("pre", { tabindex: "0", role: "group", "aria-label": "Request" }, showText(formatJson(subject)))
    : null;
  return buildForm([about, createElement("label", {}, "Answer (JSON)", answer)], read, submit);
}
