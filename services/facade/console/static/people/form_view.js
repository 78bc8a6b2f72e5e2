// Creates the form that a person answers: fields from a JSON schema, a question with choices, or plain JSON.

import { createButton, createElement } from "../elements/dom.js";
import { showText } from "../elements/shown_text.js";
import { formatJson } from "../server/json.js";
import { createFields, parseField } from "./fields.js";
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
  const { elements, read } = createFields(schema, params);
  const head = [
    schema.title && createElement("h3", {}, showText(schema.title)),
    schema.description && createElement("p", {}, showText(schema.description)),
  ];
  return buildForm([...head.filter(Boolean), ...elements], read, submit);
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
