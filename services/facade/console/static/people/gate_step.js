// Shows the steps of a gate while it was open.

import { createElement } from "../elements/dom.js";
import { showText } from "../elements/shown_text.js";

/** Create the line of a `gate.step`: the action, its user, and their note. */
export const createStepLine = (step) => createElement("p", { class: "line gate-step" }, showText(describeStep(step)));

function describeStep({ step, decision, by, credential, to = [], note }) {
  const parts = [step.replaceAll("_", " ")];
  if (decision) parts.push(`to ${decision}`);
  if (by) parts.push(`by ${by}${credential ? "" : " (identity unproven)"}`);
  if (to.length) parts.push(`to ${to.join(", ")}`);
  return parts.join(" ") + (note ? `: ${note}` : "");
}
