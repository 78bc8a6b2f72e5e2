// The page Keys: the tenant's API keys; makes them, with a text that is shown once, disables and revokes them.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatCount, formatDate } from "../elements/format.js";
import {
  createAttempt,
  createField,
  createFoldedForm,
  createFrame,
  createMark,
  createSelect,
  replaceItems,
} from "../elements/page.js";
import { createSecretBox } from "../elements/secret_box.js";
import * as api from "../server/api.js";

const SCOPES = {
  ask: "ask agents",
  answer: "answer gates",
  operate: "operate: see and stop all runs",
  read_content: "read others' content",
  publish: "publish agents",
  admin: "admin: keys and webhooks",
};
const STATES = { active: "active", unconfirmed: "unconfirmed", disabled: "disabled", expired: "expired", revoked: "revoked", "": "all" };
const STATE_MARKS = { unconfirmed: "warn", disabled: "warn", expired: "bad", revoked: "bad" };
const DAY_MS = 86_400_000;

export function createPage() {
  const list = createElement("ul", { class: "cards", "aria-label": "Keys" });
  const empty = createElement("p", { hidden: true }, "No keys.");
  const secret = createSecretBox(() => element.querySelector("h2"));
  const state = createSelect("Show", STATES, "active", () => load());
  const { element, showProblem } = createFrame(
    {
      title: "Keys",
      about: "API keys of this tenant. A disabled or revoked key stops working within five seconds.",
      tools: [state.element, createButton("Refresh", () => load())],
      className: "keys",
    },
    createForm(async ({ key, secret: text }) => {
      secret.show(`The key ${key.name} of ${key.user}. It is shown only once.`, { [`Key ${key.name}`]: text });
      await load();
    }),
    secret.element,
    empty,
    list,
  );

  const attempt = createAttempt(showProblem, load);

  async function load() {
    try {
      const keys = (await api.getData("/api/keys", { state: state.select.value })) ?? [];
      replaceItems(list, keys.map(createItem), element.querySelector("h2"));
      empty.hidden = keys.length > 0;
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  function createItem(key) {
    const { keyId, name, user, kind, state: at, credential, roles = [], scopes = [] } = key;
    const createAction = (label, act, id) =>
      createButton(label, act, { "data-focus": `${keyId}:${id}`, "aria-label": `${label}: ${name}` });
    const change = (body) => attempt(() => api.postData("/api/key", { keyId, ...body }));
    const isOver = at === "revoked" || at === "expired";
    return createElement(
      "li",
      {},
      createElement("h3", {}, name, at === "active" ? null : createMark(at, STATE_MARKS[at])),
      createElement("p", {}, `${user}${kind === "service" ? " (service)" : ""} · ${scopes.join(", ")}`),
      createElement("p", { class: "about" }, describeLimits(key, roles)),
      createElement("p", { class: "about" }, createElement("code", {}, credential), ` · ${describeTimes(key)}`),
      isOver
        ? null
        : createElement(
            "div",
            { class: "actions" },
            createAction(at === "disabled" ? "Enable" : "Disable", () => change({ disabled: at !== "disabled" }), "able"),
            createAction("Revoke", () => confirmRevocation(key), "revoke"),
          ),
    );
  }

  function confirmRevocation({ keyId, name, user }) {
    openConfirmation({
      title: `Revoke “${name}”?`,
      text: `Calls of ${user} with this key will be refused, and its open streams end. This cannot be undone.`,
      label: "Revoke",
      attributes: { class: "danger" },
      act: () => attempt(() => api.postData("/api/key/revoke", { keyId })),
    });
  }

  return { element, show: load, hide() {} };
}

function describeLimits({ runsMax, requestsPerMinute }, roles) {
  const parts = [roles.length ? `roles: ${roles.join(", ")}` : "no roles"];
  if (runsMax) parts.push(`${formatCount(runsMax, "run")} at once`);
  if (requestsPerMinute) parts.push(`${formatCount(requestsPerMinute, "call")} per minute`);
  return parts.join(" · ");
}

function describeTimes({ createdAt, createdBy, expiresAt, revokedAt, revokedBy }) {
  const parts = [`created ${formatDate(createdAt)} by ${createdBy}`];
  if (expiresAt) parts.push(`${expiresAt > Date.now() ? "expires" : "expired"} ${formatDate(expiresAt)}`);
  if (revokedAt) parts.push(`revoked ${formatDate(revokedAt)} by ${revokedBy}`);
  return parts.join(" · ");
}

function createForm(onMade) {
  const createInput = (attributes) => createElement("input", { type: "text", autocomplete: "off", ...attributes });
  const name = createInput({ required: true, maxlength: 256 });
  const user = createInput({ required: true, maxlength: 128 });
  const kind = createSelect("Of", { person: "a person", service: "a program" }, "person");
  const roles = createInput({});
  const days = createInput({ type: "number", min: 1, max: 3650 });
  const runs = createInput({ type: "number", min: 1, max: 100_000 });
  const calls = createInput({ type: "number", min: 1, max: 1_000_000 });
  const scopes = Object.keys(SCOPES).map((value) =>
    createElement("input", { type: "checkbox", value, defaultChecked: value === "ask" || value === "answer" }),
  );

  async function submit() {
    const chosen = scopes.filter(({ checked }) => checked).map(({ value }) => value);
    if (!chosen.length) throw new Error("Select at least one scope.");
    const given = roles.value.split(/[\s,]+/).filter(Boolean);
    const made = await api.postData("/api/keys", {
      name: name.value,
      user: user.value,
      kind: kind.select.value,
      scopes: chosen,
      ...(given.length && { roles: given }),
      ...(days.value && { expiresAt: Date.now() + Number(days.value) * DAY_MS }),
      ...(runs.value && { runsMax: Number(runs.value) }),
      ...(calls.value && { requestsPerMinute: Number(calls.value) }),
    });
    return () => onMade(made);
  }

  return createFoldedForm(
    "New key",
    [
      createField("Name", name, "display name"),
      createField("User", user, "the owner of the key and of its runs, chats and spending"),
      kind.element,
      createElement(
        "div",
        { role: "group", "aria-label": "Scopes" },
        ...scopes.map((input) => createElement("label", { class: "check" }, input, SCOPES[input.value])),
      ),
      createField("Roles", roles, "comma-separated; empty: none"),
      createField("Expires", days, "in days; empty: never"),
      createField("Concurrent runs", runs, "across all replicas; empty: the tenant's limit"),
      createField("Calls per minute", calls, "across all replicas; empty: no limit"),
    ],
    "Create",
    submit,
  );
}
