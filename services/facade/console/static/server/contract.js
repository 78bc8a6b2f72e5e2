// Reads the contract of the RPCs that lists and forms are drawn from, and calls them by name.

import { callRoute } from "./api.js";

let contract = null;

/** Return {rpcs, events}: each RPC's route, the schema of its request and the labels of its items, and audited events. */
export function loadContract() {
  contract ??= fetchContract().catch((error) => {
    contract = null; // the next page asks again
    throw error;
  });
  return contract;
}

async function fetchContract() {
  const response = await fetch("/console/contract.json");
  if (!response.ok) throw new Error(`The contract could not be loaded: ${response.status}`);
  return response.json();
}

/** Call an RPC such as KeyService.CreateKey and return its answer. */
export async function callRpc(name, values = {}) {
  const { verb, path } = (await loadContract()).rpcs[name];
  return (await callRoute(verb, path, values)).data;
}

/** Call an RPC that lists; return {items, nextPageToken, answer}. */
export async function listRpc(name, values = {}) {
  const { verb, path, items } = (await loadContract()).rpcs[name];
  const { data, nextPageToken } = await callRoute(verb, path, values);
  const isList = Array.isArray(data);
  return {
    items: (isList ? data : data?.[items]) ?? [],
    nextPageToken: nextPageToken ?? (isList ? "" : data?.nextPageToken),
    answer: data,
  };
}
