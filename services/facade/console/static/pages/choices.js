// Lists the possible values of fields.

import * as api from "../server/api.js";

/** Return the agents as a field's choices; with `isList` several may be chosen. */
export async function listAgentChoices(isList = false) {
  const agents = await api.listAgents().catch(() => []); // the server refuses a wrong one
  const [keys, labels] = [agents.map(({ key }) => key), Object.fromEntries(agents.map(({ key, name }) => [key, name || key]))];
  return isList ? { items: { type: "string", enum: keys }, labels } : { enum: keys, labels };
}

/** Return whether the caller's credential has a scope. */
export async function hasScope(scope) {
  const { scopes = [] } = await api.getIdentity().catch(() => ({})); // the server refuses it, too
  return scopes.includes(scope);
}
