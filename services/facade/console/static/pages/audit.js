// The page Audit: who has done what with which credential, the newest first, and whether the log is as it was written.

import { createElement } from "../elements/dom.js";
import { formatDate } from "../elements/format.js";
import { createFrame, createMark, createRow, createTable, replaceItems } from "../elements/page.js";
import { Polling } from "../elements/polling.js";
import * as api from "../server/api.js";
import { parseJson } from "../client/json.js";

const PERIOD_MS = 10_000;
const LINES_SHOWN = 200;
const COLUMNS = ["number", "when", "event", "who", "what"];
const OWN_FIELDS = new Set(["seq", "at", "event", "tenant", "by", "credential", "previous", "hash"]);

const countFormat = new Intl.NumberFormat();

export function createPage() {
  const table = createTable("Audit log", COLUMNS, []);
  const outcome = createElement("p", { role: "status" });
  const verify = createElement("button", { type: "button", onclick: check }, "Verify the log");
  const { element, showProblem } = createFrame(
    {
      title: "Audit",
      about: `Who did what in your tenant: the last ${LINES_SHOWN} lines. The log has no content of chats.`,
      className: "audit",
    },
    createElement("p", {}, verify),
    outcome,
    table,
  );
  const polling = new Polling(load, { periodMs: PERIOD_MS, onProblem: showProblem });

  async function load() {
    const lines = (await api.getData("/api/audit", { pageSize: LINES_SHOWN })) ?? [];
    replaceItems(table.querySelector("tbody"), lines.map(createLine));
  }

  async function check() {
    verify.disabled = true;
    try {
      const { lines = 0, lastHash, problem } = await api.getData("/api/audit/verify");
      const whole = `${countFormat.format(lines)} lines are intact; the last hash is ${lastHash}`;
      const mark = createMark(problem ? "wrong" : "whole", problem ? "bad" : "good");
      outcome.replaceChildren(mark, ` ${problem || whole}`);
    } catch (error) {
      showProblem(error);
    } finally {
      verify.disabled = false;
    }
  }

  return { element, show: () => polling.start(), hide: () => polling.stop() };
}

function createLine({ seq, at, event, by = "", credential = "", line }) {
  const facts = Object.entries(parseJson(line)).filter(([name]) => !OWN_FIELDS.has(name));
  const what = facts.map(([name, value]) => `${name}: ${value}`).join(", ");
  const shown = credential ? createElement("small", {}, ` ${credential}`) : null;
  const who = createElement("span", {}, by || "–", shown);
  return createRow([countFormat.format(seq), formatDate(at), event, who, what]);
}
