// The view of a frontend tool: HTML in a frame that can run scripts and nothing else, any other view as a form.
//
// A frame is given {toolParams} when it has loaded, and answers {type: "submit", params}; it may ask for its height
// with {type: "resize", height}. It has no origin, so the messages are known by their sender.

import * as api from "../server/api.js";
import { h } from "../elements/dom.js";
import { form } from "./form_view.js";
import { sending } from "./submission.js";

const HEIGHT_MAX = 640;

/** Show the view in `place`, if it `isWanted()` by then. Without a view a plain form asks. */
export async function show(place, { viewportKey, toolName, params, isWanted }, submit) {
  let view = null;
  try {
    view = await api.viewport(viewportKey);
  } catch (error) {
    // ask_human needs no view; any other call can still be answered, as JSON.
    if (!(error instanceof api.ApiError)) throw error;
  }
  if (!isWanted()) return;
  const isHtml = typeof view?.html === "string" && Object.keys(view).length === 1;
  place.replaceChildren(isHtml ? frame(view.html, toolName, params, submit) : form(toolName, view, params, submit));
}

function frame(html, toolName, params, submit) {
  const iframe = h("iframe", { sandbox: "allow-scripts", src: "/console/frame.html", title: `View of ${toolName}` });
  const problem = h("p", { role: "alert", class: "problem" });
  const fieldset = h("fieldset", { class: "view" }, iframe, problem);
  const receive = (event) => {
    if (!iframe.isConnected) return removeEventListener("message", receive);
    if (event.source !== iframe.contentWindow) return undefined;
    const { type, params: answer, height } = Object(event.data);
    if (type === "empty") iframe.contentWindow.postMessage({ html }, "*");
    else if (type === "ready") iframe.contentWindow.postMessage({ toolParams: plain(params) }, "*");
    else if (type === "resize") iframe.height = Math.min(Math.max(Number(height) || 0, 60), HEIGHT_MAX);
    else if (type === "submit" && !fieldset.disabled) sending(fieldset, problem, () => submit(answer ?? {}));
    return undefined;
  };
  addEventListener("message", receive);
  return fieldset;
}

/** Without the exact numbers of json.js, which no other window knows. */
function plain(params) {
  return JSON.parse(JSON.stringify(params ?? {}));
}
