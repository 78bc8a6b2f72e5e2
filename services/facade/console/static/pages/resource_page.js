// Creates a page of lists that are drawn from the contract.

import { createFrame } from "../elements/page.js";
import { Polling } from "../elements/polling.js";
import { createSecretBox } from "../elements/secret_box.js";
import { updatePageAddress } from "../navigation/address.js";
import { loadContract } from "../server/contract.js";
import { ResourceList } from "./resource_list.js";

const PERIOD_MS = 5000;

/** Create a page: its title, a line about it, and its lists. */
export async function createResourcePage({ name, title, about, lists, prepare }) {
  const [{ rpcs, events }] = await Promise.all([loadContract(), prepare?.()]);
  const secret = createSecretBox(() => element.querySelector("h2"));
  let params = {};
  const context = {
    events,
    attempt,
    showSecret: secret.show,
    getHeading: () => element.querySelector("h2"),
    getParameters: () => params,
    onFilter: (values) => {
      updatePageAddress(name, values);
      return polling.refresh();
    },
  };
  const shown = (await lists(context)).map((resource) => new ResourceList(resource, rpcs, context));
  const { element, showProblem } = createFrame({ title, about, className: name }, secret.element, ...shown.map((list) => list.element));
  const load = () => Promise.all(shown.map((list) => list.load()));
  const polling = new Polling(load, { periodMs: PERIOD_MS, onProblem: showProblem });

  /** Do something, show the lists as they are now, or the problem. */
  async function attempt(act) {
    try {
      await act();
      await load();
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  function show(parameters) {
    params = Object.fromEntries(Object.entries(parameters).map(([field, value]) => [field, readParameter(value)]));
    for (const list of shown) list.setFilters(params);
    return polling.start();
  }

  return { element, show, hide: () => polling.stop() };
}

/** Return a filter's value as its field has it: numbers, and lists, are such in the address, too. */
const readParameter = (value) => (/^\d+$/.test(value) ? Number(value) : value);
