// Creates the fields of a form from a JSON schema.

import { createElement } from "../elements/dom.js";
import { parseJson } from "../client/json.js";
import { showText } from "../elements/shown_text.js";
import { formatJson } from "../server/json.js";

/** Create a field for each property of a schema of type object; read() returns their values, without empty ones. */
export function createFields(schema, values = {}) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, property]) =>
    createField(name, property, values[name] ?? property.default, required.has(name)),
  );
  const read = () => {
    const entries = fields.map(({ name, value }) => [name, value()]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  };
  return { elements: fields.map(({ element }) => element), read };
}

/** Create a property's element and `value()`, which returns undefined for an empty field. */
function createField(name, property, preset, required) {
  const label = showText(property.title ?? name);
  const attributes = { name, required, autocomplete: "off" };
  if (property.enum) return createChoiceField(name, label, property, preset, attributes);
  if (property.items?.enum) return createListField(name, label, property, preset ?? []);
  if (property.items?.type === "string") return createWordsField(name, label, property, preset ?? [], attributes);
  if (property.type === "boolean") return createCheckField(name, label, property, preset);
  if (property.format === "unix-ms") return createTimeField(name, label, property, preset, attributes);
  if (property.type === "number" || property.type === "integer") {
    return createNumberField(name, label, property, preset, attributes);
  }
  const isText = property.type === "string";
  const isShort = isText && (!(property.maxLength > 256) || property.format === "uri");
  const input = createElement(isShort ? "input" : "textarea", { ...attributes, maxlength: property.maxLength });
  if (property.format === "uri") input.type = "url";
  const examples = isShort && property.examples?.length && createExamples(input, name, property.examples);
  if (preset !== undefined) input.value = isText ? preset : formatJson(preset);
  const value = () => (input.value === "" ? undefined : isText ? input.value : parseField(label, input.value));
  return { name, value, element: createLabel(label, property, input, examples || null) };
}

/** Offer values that a field may have, along with others. */
function createExamples(input, name, examples) {
  input.setAttribute("list", `examples-of-${name}`);
  return createElement("datalist", { id: `examples-of-${name}` }, ...examples.map((value) => createElement("option", { value })));
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

/** Create a field for Unix milliseconds, shown as a day and time of this place. */
function createTimeField(name, label, property, preset, attributes) {
  const input = createElement("input", { ...attributes, type: "datetime-local" });
  if (preset) input.value = new Date(preset - new Date(preset).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  const value = () => (input.value === "" ? undefined : new Date(input.value).getTime());
  return { name, value, element: createLabel(label, property, input) };
}

export function parseField(label, text) {
  try {
    return parseJson(text);
  } catch {
    throw new Error(`${label}: must be valid JSON`);
  }
}

const nameValue = ({ labels }, value) => labels?.[value] ?? (typeof value === "string" ? value : JSON.stringify(value));

function createChoiceField(name, label, property, preset, attributes) {
  const options = property.enum.map((value, index) =>
    createElement("option", { value: index, selected: value === preset }, showText(nameValue(property, value))),
  );
  const empty = createElement("option", { value: "", selected: preset === undefined }, property.empty ?? "Choose…");
  const select = createElement("select", attributes, ...(property.empty === null ? [] : [empty]), ...options);
  const value = () => (select.value === "" ? undefined : property.enum[Number(select.value)]);
  return { name, value, element: createLabel(label, property, select) };
}

function createListField(name, label, property, preset) {
  const boxes = property.items.enum.map((value) =>
    createElement("input", { type: "checkbox", value, checked: preset.includes(value) }),
  );
  const checks = boxes.map((box) =>
    createElement("label", { class: "check" }, box, showText(nameValue(property, box.value))),
  );
  const value = () => {
    const chosen = boxes.filter(({ checked }) => checked).map((box) => box.value);
    return chosen.length ? chosen : undefined;
  };
  const legend = createElement("legend", {}, label);
  const list = createElement("div", {}, ...checks);
  return { name, value, element: createElement("fieldset", { class: "checks", name }, legend, createHint(property), list) };
}

function createWordsField(name, label, property, preset, attributes) {
  const input = createElement("input", attributes);
  input.value = preset.join(", ");
  const value = () => {
    const words = input.value.split(",").map((word) => word.trim()).filter(Boolean);
    return words.length ? words : undefined;
  };
  const description = [property.description, "Separate several with commas."].filter(Boolean).join(" ");
  return { name, value, element: createLabel(label, { description }, input) };
}

function createCheckField(name, label, property, preset) {
  const input = createElement("input", { type: "checkbox", name, checked: preset === true });
  const hint = createHint(property);
  return { name, value: () => input.checked, element: createElement("label", { class: "check" }, input, label, hint) };
}

const createHint = ({ description }) => (description ? createElement("small", {}, showText(description)) : null);

const createLabel = (label, property, ...inputs) => createElement("label", {}, label, createHint(property), ...inputs);
