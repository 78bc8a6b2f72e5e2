// Shows the steps of a gate while it was open, and who took them.

import { createElement } from "../elements/dom.js";
import { showText } from "../elements/shown_text.js";

/** Create the line of a `gate.step`: the action, its user, and their note. */
export const createStepLine = (step) => createElement("p", { class: "line gate-step" }, showText(describeStep(step)));

export const describeAuthor = (by, credential) => (by ? ` by ${by}${credential ? "" : " (identity unproven)"}` : "");

function describeStep({ step, decision, by, credential, to = [], note }) {
  const voted = (decision ? ` to ${decision}` : "") + describeAuthor(by, credential);
  return step.replaceAll("_", " ") + voted + (to.length ? ` to ${to.join(", ")}` : "") + (note ? `: ${note}` : "");
}
