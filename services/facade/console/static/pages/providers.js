// The page Providers: how the providers in force and their models do, the replicas that have runs, and limits.

import { createElement } from "../elements/dom.js";
import { formatSeconds } from "../elements/format.js";
import { createFrame, createMark, createRow, createTable, replaceItems } from "../elements/page.js";
import { Polling } from "../elements/polling.js";
import * as api from "../server/api.js";
import { createLimits } from "./limits.js";

const PERIOD_MS = 10_000;
const BREAKER_MARKS = { closed: "good", "half-open": "warn", open: "bad" };

const countFormat = new Intl.NumberFormat();
const percentFormat = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });

const formatMs = (ms) => (ms === undefined ? "–" : `${countFormat.format(ms)} ms`);
const formatOf = (number = 0, limit) =>
  countFormat.format(number) + (limit === undefined ? "" : ` of ${countFormat.format(limit)}`);

export function createPage() {
  const list = createElement("ul", { class: "cards", "aria-label": "Providers" });
  const replicas = createTable("Replicas of the orchestrator", ["address", "unfinished runs", "state"], []);
  const limits = createLimits();
  const cards = new Map(); // by provider: what is updated, so that tables stay where they were scrolled to
  const { element, showProblem } = createFrame(
    { title: "Providers", about: "Health of model calls in the last few minutes.", className: "providers" },
    list,
    createElement("h3", {}, "Replicas"),
    replicas,
    limits.element,
  );
  const polling = new Polling(load, { periodMs: PERIOD_MS, onProblem: showProblem });

  async function load() {
    const [providers, known] = await Promise.all([
      ...["/api/operator/providers", "/api/operator/replicas"].map((path) => api.getData(path)),
      limits.load(),
    ]);
    const shown = (providers ?? []).map((provider) => {
      const card = cards.get(provider.providerKey) ?? createCard(provider.providerKey);
      cards.set(provider.providerKey, card);
      card.update(provider);
      return card.element;
    });
    if (shown.length !== list.children.length || shown.some((card, index) => card !== list.children[index])) {
      list.replaceChildren(...shown);
    }
    replaceItems(replicas.querySelector("tbody"), (known ?? []).map(createReplica));
  }

  return { element, show: () => polling.start(), hide: () => polling.stop() };
}

function createCard(key) {
  const facts = createElement("dl");
  const table = createTable(`Models of ${key}`, ["model", "breaker", "attempts", "failed", "first delta", "95 %"], []);
  const element = createElement("li", {}, createElement("h3", {}, key), facts, table);

  function update(provider) {
    const rows = [
      ["In progress", formatOf(provider.running, provider.concurrency)],
      ["Waiting", formatOf(provider.waiting)],
      ["Requests per minute", formatOf(provider.minuteRequests, provider.requestsPerMinute)],
      ["Tokens per minute", formatOf(provider.minuteTokens, provider.tokensPerMinute)],
    ];
    const terms = rows.flatMap(([term, fact]) => [createElement("dt", {}, term), createElement("dd", {}, fact)]);
    facts.replaceChildren(...terms);
    replaceItems(table.querySelector("tbody"), (provider.models ?? []).map(createModel));
  }

  return { element, update };
}

function createModel({ model, breaker, blockedMs, attempts = 0, errorRatio, firstDeltaMs, firstDeltaMsP95 }) {
  const blocked = blockedMs ? createElement("small", {}, ` for ${formatSeconds(blockedMs)}`) : null;
  return createRow([
    model,
    createElement("span", {}, createMark(breaker, BREAKER_MARKS[breaker]), blocked),
    countFormat.format(attempts),
    errorRatio === undefined ? "–" : percentFormat.format(errorRatio),
    formatMs(firstDeltaMs),
    formatMs(firstDeltaMsP95),
  ]);
}

function createReplica({ address, runs = 0, isAlive, isThis }) {
  return createRow([
    address + (isThis ? " (this one)" : ""),
    countFormat.format(runs),
    createMark(isAlive ? "alive" : "its leases have expired", isAlive ? "good" : "bad"),
  ]);
}
