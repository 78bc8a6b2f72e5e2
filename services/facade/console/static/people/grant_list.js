// Lists the approvals that hold for later calls, and where to revoke them.

import { formatDate } from "../elements/format.js";
import * as api from "../server/api.js";
import { RevocableList } from "./revocable_list.js";

const LISTED_MAX = 50;

export function createGrantList() {
  return new RevocableList({
    title: "Approved in advance",
    load: () => api.listGrants({ pageSize: LISTED_MAX }),
    describe({ scope, toolName, grounds, requester, madeBy, expiresAt }) {
      const lasts = expiresAt ? `until ${formatDate(expiresAt)}` : "until its run ends";
      return {
        title: `${toolName}, for a ${scope} of ${requester}`,
        about: `${grounds.join("; ")} · by ${madeBy.join(", ")} · ${lasts}`,
        name: toolName,
      };
    },
    revoke: ({ chatId, grantId }) => api.revokeGrant({ chatId, grantId }),
  });
}
