// What a page offers to who may see the whole tenant.

import * as api from "../server/api.js";

/** Take the choice of the whole tenant away from who has no scope for it. */
export async function removeForeign(select) {
  const { scopes = [] } = await api.getIdentity().catch(() => ({})); // the server refuses it, too
  if (!scopes.includes("operate")) select.querySelector("[value=tenant]").remove();
}
