// The page Audit: who did what with which credential, newest first, and whether the log is intact.

import { createButton, createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createMark } from "../elements/page.js";
import { parseJson } from "../client/json.js";
import { callRpc } from "../server/contract.js";
import { createPair, spell } from "./cells.js";
import { createResourcePage } from "./resource_page.js";

const OWN_FIELDS = new Set(["seq", "at", "event", "tenant", "by", "credential", "previous", "hash"]);

const countFormat = new Intl.NumberFormat();

const readFacts = ({ line }) => Object.entries(parseJson(line)).filter(([name, value]) => !OWN_FIELDS.has(name) && value !== "");

const makeList = (events) => ({
  key: "seq",
  noun: "line",
  label: "Audit log",
  list: "AuditService.ListAudit",
  filters: ["event", "by", "fromAt", "untilAt"],
  properties: {
    event: { enum: events, title: "What" },
    by: { title: "Who" },
    fromAt: { title: "From" },
    untilAt: { title: "Until" },
  },
  isFlat: true,
  columns: [
    ["When", ({ at }) => formatDate(at), "at"],
    ["What", ({ event }) => createElement("code", {}, event), "event"],
    ["Who", ({ by, credential }) => createPair(by || "–", credential), "by"],
    ["Details", (line) => readFacts(line).map(([name, value]) => `${spell(name)}: ${value}`).join(", "), "line"],
    ["Line", ({ seq }) => seq, "seq"],
  ],
  empty: "No lines.",
  tools: ({ attempt }) => {
    const outcome = createElement("span", { role: "status" });
    const check = async () => {
      const { lines = 0, lastHash, problem } = await callRpc("AuditService.VerifyAudit");
      const whole = `${countFormat.format(lines)} lines are intact; the last hash is ${lastHash}`;
      outcome.replaceChildren(createMark(problem ? "wrong" : "intact", problem ? "bad" : "good"), ` ${problem || whole}`);
    };
    return [createButton("Verify the log", () => attempt(check)), outcome];
  },
});

export const createPage = () =>
  createResourcePage({
    name: "audit",
    title: "Audit",
    about: "Who did what in your tenant. The log has no content of chats.",
    lists: ({ events }) => {
      const groups = new Set(events.map((event) => event.split(".")[0]));
      return [makeList([...groups, "sign_in", "config", ...events].sort())];
    },
  });
