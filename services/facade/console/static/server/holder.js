// The id by which this tab claims gates. It survives a reload, so that the tab regains its own claim.

import { createId } from "./api.js";

const NAME = "headrace.holder";

export function getHolder() {
  if (!sessionStorage.getItem(NAME)) sessionStorage.setItem(NAME, createId());
  return sessionStorage.getItem(NAME);
}
