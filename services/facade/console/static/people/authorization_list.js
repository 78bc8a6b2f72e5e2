// Lists the MCP servers that Headrace may use for the user, and where to take that back.

import { formatDate } from "../elements/format.js";
import * as api from "../server/api.js";
import { RevocableList } from "./revocable_list.js";

export function createAuthorizationList() {
  return new RevocableList({
    title: "Authorized servers",
    load: api.listAuthorizations,
    describe({ server, issuer, authorizedAt, expiresAt, renewable, inUse }) {
      const lasts = expiresAt && !renewable ? ` · until ${formatDate(expiresAt)}` : "";
      const title = inUse ? server : `${server} (not in use)`;
      return { title, about: `by ${issuer} · since ${formatDate(authorizedAt)}${lasts}`, name: server };
    },
    revoke: ({ server }) => api.revokeAuthorization(server),
  });
}
