// The page Providers: the health of models and replicas, and how much is used of each limit.

import { createElement } from "../elements/dom.js";
import { formatDate, formatMs, formatSeconds, formatSize, formatUsd } from "../elements/format.js";
import { createMark } from "../elements/page.js";
import { listRpc } from "../server/contract.js";
import { createPair, createState, spell } from "./cells.js";
import { createResourcePage } from "./resource_page.js";

const countFormat = new Intl.NumberFormat();
const percentFormat = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });

const formatUse = (number = 0, limit = undefined) =>
  countFormat.format(number) + (limit === undefined ? "" : ` of ${countFormat.format(limit)}`);

/** All models are in one list, each with its provider, so that slow and failing ones are easy to find. */
const MODELS = {
  key: "id",
  noun: "model",
  label: "Models",
  title: "Models",
  about: "Model calls of the last few minutes.",
  list: "OperatorService.ListProviders",
  filters: [],
  isFlat: true,
  find: async () => {
    const { items } = await listRpc("OperatorService.ListProviders");
    const none = [{ model: "–" }];
    const rows = items.flatMap((provider) => (provider.models?.length ? provider.models : none).map((model) => ({ ...provider, ...model })));
    return { items: rows.map((row) => ({ ...row, id: `${row.providerKey}/${row.model}` })) };
  },
  columns: [
    ["Model", ({ model, providerKey }) => createPair(model, providerKey), "model"],
    ["Breaker", createHealth, "breaker"],
    ["Attempts", ({ attempts = 0 }) => attempts, "attempts"],
    ["Failed", ({ errorRatio }) => (errorRatio === undefined ? "–" : percentFormat.format(errorRatio)), "errorRatio"],
    ["First token", createFirstToken, "firstDeltaMs"],
    ["In progress", ({ running, concurrency }) => formatUse(running, concurrency), "running"],
    ["Waiting", ({ waiting = 0 }) => waiting, "waiting"],
    ["Requests / min", ({ minuteRequests, requestsPerMinute }) => formatUse(minuteRequests, requestsPerMinute), "minuteRequests"],
    ["Tokens / min", ({ minuteTokens, tokensPerMinute }) => formatUse(minuteTokens, tokensPerMinute), "minuteTokens"],
  ],
  empty: "No providers are configured.",
};

function createHealth({ breaker, blockedMs }) {
  return breaker ? createPair(createState(breaker), blockedMs && `for ${formatSeconds(blockedMs)}`) : "–";
}

function createFirstToken({ firstDeltaMs: usual, firstDeltaMsP95: slow }) {
  return createPair(usual === undefined ? "–" : formatMs(usual), slow && `95 %: ${formatMs(slow)}`);
}

const REPLICAS = {
  key: "address",
  noun: "replica",
  label: "Replicas of the orchestrator",
  title: "Replicas",
  list: "OperatorService.ListReplicas",
  filters: [],
  isFlat: true,
  columns: [
    ["Address", ({ address, isThis }) => address + (isThis ? " (this one)" : ""), "address"],
    ["State", ({ isAlive }) => createMark(isAlive ? "alive" : "its leases have expired", isAlive ? "good" : "bad"), "isAlive"],
    ["Unfinished runs", ({ runs = 0 }) => runs, "runs"],
  ],
  empty: "No replicas.",
};

const LIMITS = {
  key: "id",
  noun: "limit",
  label: "Limits",
  title: "Limits",
  about: "The limits that apply to you, and how much your tenant has used. Full ones come first.",
  list: "OperatorService.GetLimits",
  filters: ["user"],
  isFlat: true,
  find: async (values) => {
    const { items, answer } = await listRpc("OperatorService.GetLimits", values);
    const sorted = [...items].sort((one, other) => Number(other.isFull ?? false) - Number(one.isFull ?? false));
    return { items: sorted.map((limit, index) => ({ ...limit, id: `${limit.name}:${index}` })), answer };
  },
  describe: ({ answer: { missing } }) => missing?.length && `No answer from: ${missing.join(", ")}.`,
  columns: [
    ["Limit", ({ name, subject }) => createPair(spell(name), subject), "name"],
    ["State", createFill, "isFull"],
    ["Used", createUse, "used"],
    ["Per", ({ per, periodMs }) => per + (periodMs ? `, in ${formatSeconds(periodMs)}` : ""), "per"],
    ["Set by", ({ source, sourceName }) => createPair(source, sourceName), "source"],
  ],
  empty: "No limits.",
};

function createFill({ breaker, isFull, opensAt }) {
  return createPair(createState(breaker || (isFull ? "full" : "free")), isFull && opensAt && `until ${formatDate(opensAt)}`);
}

function createUse({ used, value, unit }) {
  const text = [used, value].map((number) => (number === undefined ? "–" : formatNumber(number, unit))).join(" of ");
  const meter = { min: 0, max: value, value: used, high: value * 0.8, optimum: 0, "aria-label": text };
  return createElement("span", { class: "use" }, text, value && used !== undefined ? createElement("meter", meter) : "");
}

function formatNumber(number, unit) {
  if (unit === "nano_usd") return formatUsd(number);
  return unit === "bytes" ? formatSize(number) : `${countFormat.format(number)} ${unit}`;
}

export const createPage = () =>
  createResourcePage({
    name: "providers",
    title: "Providers",
    about: "Health of models and replicas, and the limits in effect.",
    lists: () => [MODELS, REPLICAS, LIMITS],
  });
