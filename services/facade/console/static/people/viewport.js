// Shows the view of a frontend tool: HTML in a frame that can run scripts and nothing else, any other view as a form.
//
// A frame receives {toolParams} when it has loaded and answers {type: "submit", params}; it may set its height with
// {type: "resize", height}. It has no origin, so its messages are recognised by their source.

import * as api from "../server/api.js";
import { createElement } from "../elements/dom.js";
import { showText } from "../elements/shown_text.js";
import { createForm } from "./form_view.js";
import { submitForm } from "./submission.js";

const HEIGHT_MAX = 640;

/** Show the view in `container` if the call still `isWaiting()` once it is loaded; without a view, show a form. */
export async function showViewport(container, { viewportKey, toolName, params, isWaiting, claim }, submit) {
  let view = null;
  try {
    view = await api.getViewport(viewportKey);
  } catch (error) {
    // ask_human needs no view; any other call can still be answered, as JSON.
    if (!(error instanceof api.HeadraceError)) throw error;
  }
  if (!isWaiting()) return;
  const isHtml = typeof view?.html === "string" && Object.keys(view).length === 1;
  const form = isHtml ? createFrame(view.html, toolName, params, submit) : createForm(toolName, view, params, submit);
  container.replaceChildren(claim.element, form);
  claim.watch(form);
}

function createFrame(html, toolName, params, submit) {
  const iframe = createElement("iframe", {
    sandbox: "allow-scripts",
    src: "/console/frame.html",
    title: `View of ${showText(toolName)}`,
  });
  const problem = createElement("p", { role: "alert", class: "problem" });
  const fieldset = createElement("fieldset", { class: "view" }, iframe, problem);
  const receive = (event) => {
    if (!iframe.isConnected) return removeEventListener("message", receive);
    if (event.source !== iframe.contentWindow) return undefined;
    const { type, params: answer, height } = Object(event.data);
    if (type === "empty") iframe.contentWindow.postMessage({ html }, "*");
    else if (type === "ready") iframe.contentWindow.postMessage({ toolParams: toPlainJson(params) }, "*");
    else if (type === "resize") iframe.height = Math.min(Math.max(Number(height) || 0, 60), HEIGHT_MAX);
    else if (type === "submit" && !fieldset.disabled) submitForm(fieldset, problem, () => submit(answer ?? {}));
    return undefined;
  };
  addEventListener("message", receive);
  return fieldset;
}

/** Remove the exact numbers of json.js, which cannot be sent to another window. */
function toPlainJson(params) {
  return JSON.parse(JSON.stringify(params ?? {}));
}
