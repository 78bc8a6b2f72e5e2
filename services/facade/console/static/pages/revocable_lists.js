// Lists the user's approvals of later calls and authorized MCP servers, with buttons to revoke them.

import { createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { showText } from "../elements/shown_text.js";
import { loadContract } from "../server/contract.js";
import { createPair } from "./cells.js";
import { ResourceList } from "./resource_list.js";

const makeList = (label, list, revoke, describe, others) => ({
  ...{ label, list, title: label, filters: [], isFlat: true, isOptional: true, columns: [["Granted", describe]] },
  ...{ actions: [{ label: "Revoke", rpc: revoke, inRow: true }], ...others },
});

const describeGrant = ({ scope, toolName, grounds, requester, madeBy, expiresAt }) => {
  const lasts = expiresAt ? `until ${formatDate(expiresAt)}` : "until its run ends";
  const about = `${grounds.join("; ")} · by ${madeBy.join(", ")} · ${lasts}`;
  return createPair(showText(`${toolName}, for a ${scope} of ${requester}`), showText(about));
};

const describeAuthorization = ({ server, issuer, authorizedAt, expiresAt, renewable, inUse }) => {
  const lasts = expiresAt && !renewable ? ` · until ${formatDate(expiresAt)}` : "";
  const about = `by ${issuer} · since ${formatDate(authorizedAt)}${lasts}`;
  return createPair(showText(inUse ? server : `${server} (not in use)`), showText(about));
};

const LISTS = [
  makeList("Approved in advance", "GateService.ListGrants", "GateService.RevokeGrant", describeGrant, {
    key: "grantId",
    keys: ["chatId", "grantId"],
    name: ({ toolName }) => toolName,
  }),
  makeList("Authorized servers", "ToolService.ListAuthorizations", "ToolService.RevokeAuthorization", describeAuthorization, {
    key: "server",
    name: ({ server }) => server,
  }),
];

/** Create the lists; `context` has showProblem(error) and getHeading(). */
export function createRevocableLists({ showProblem, getHeading }) {
  const element = createElement("div", {});
  let lists = null;

  async function attempt(act) {
    try {
      await act();
      await Promise.all(lists.map((list) => list.load()));
    } catch (error) {
      showProblem(error);
    }
  }

  const createLists = async () => {
    const { rpcs } = await loadContract();
    lists = LISTS.map((resource) => new ResourceList(resource, rpcs, { attempt, getHeading }));
    element.replaceChildren(...lists.map((list) => list.element));
  };
  return { element, refresh: () => attempt(() => lists ?? createLists()) };
}
