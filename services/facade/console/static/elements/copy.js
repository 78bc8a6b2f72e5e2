// Copies text to the clipboard.

import { createButton } from "./dom.js";
import { createIcon } from "./icon.js";

const SHOWN_MS = 1500;

/** Create a button that copies the text of `getText()`; browsers allow this only over HTTPS and for local pages. */
export function createCopyButton(label, getText) {
  const button = createButton("", async () => {
    await navigator.clipboard.writeText(getText());
    button.replaceChildren(createIcon("check"));
    setTimeout(() => button.replaceChildren(createIcon("copy")), SHOWN_MS);
  });
  button.className = "quiet copy";
  button.hidden = !globalThis.navigator?.clipboard;
  button.setAttribute("aria-label", label);
  button.title = label;
  button.append(createIcon("copy"));
  return button;
}
