// The page Data: what is kept of people, given to them, erased with a receipt, or held for a matter.

import { openConfirmation } from "../elements/confirm.js";
import { createButton, createElement } from "../elements/dom.js";
import { saveData } from "../elements/download.js";
import { formatDate } from "../elements/format.js";
import {
  createAttempt,
  createField,
  createFoldedForm,
  createFrame,
  createMark,
  createSelect,
  replaceItems,
} from "../elements/page.js";
import { Polling } from "../elements/polling.js";
import * as api from "../server/api.js";

const PERIOD_MS = 5000;
const ERASED = { user: "a user", tenant: "the whole tenant" };
const HELD = { user: "a user", chat: "a chat", tenant: "the whole tenant" };
const NAME_HINTS = { user: "the user's name", chat: "the chat's id", tenant: "the tenant's name, to confirm" };

export function createPage() {
  const erasures = createElement("ul", { class: "cards", "aria-label": "Erasures" });
  const noErasures = createElement("p", { hidden: true }, "No erasures.");
  const holds = createElement("ul", { class: "cards", "aria-label": "Holds" });
  const noHolds = createElement("p", { hidden: true }, "No holds.");
  const { element, showProblem } = createFrame(
    {
      title: "Data",
      about: "Personal data of this tenant's users: export it, erase it, or place a hold on it.",
      className: "data",
    },
    createExportForm(),
    createRequestForm("Erase", ERASED, "Erase…", confirmErasure),
    createRequestForm("Hold", HELD, "Place hold", placeHold, { needsReason: true }),
    createElement("h3", {}, "Holds"),
    noHolds,
    holds,
    createElement("h3", {}, "Erasures"),
    noErasures,
    erasures,
  );
  const polling = new Polling(load, { periodMs: PERIOD_MS, onProblem: showProblem });

  const attempt = createAttempt(showProblem, load);

  async function load() {
    const [erased = [], held = []] = await Promise.all([api.listErasures(), api.listHolds()]);
    const heading = element.querySelector("h2");
    replaceItems(erasures, erased.map(createErasure), heading);
    replaceItems(holds, held.map(createHold), heading);
    noErasures.hidden = erased.length > 0;
    noHolds.hidden = held.length > 0;
  }

  async function placeHold(what) {
    await api.postData("/api/data/holds", { ...what, requestId: api.createId() });
    return load;
  }

  function confirmErasure(what) {
    const requestId = api.createId();
    const whose = what.tenant ? `the whole tenant ${what.tenant}` : what.user;
    return () =>
      openConfirmation({
        title: `Erase all data of ${whose}?`,
        text: "Runs will be stopped, and chats, files, facts, schedules and keys deleted, for everyone. This cannot be undone.",
        label: "Erase",
        attributes: { class: "danger" },
        act: () => attempt(() => api.postData("/api/data/erase", { ...what, requestId })),
      });
  }

  function createHold(hold) {
    const { holdId, reason, placedBy, placedAt } = hold;
    const label = `Release: ${nameSubject(hold)}`;
    const release = createButton("Release", () => confirmRelease(hold), { "data-focus": holdId, "aria-label": label });
    return createElement(
      "li",
      {},
      createElement("h4", {}, nameSubject(hold)),
      createElement("p", {}, reason),
      createElement("p", { class: "about" }, `held ${formatDate(placedAt)} by ${placedBy}`),
      createElement("div", { class: "actions" }, release),
    );
  }

  function confirmRelease(hold) {
    openConfirmation({
      title: `Release the hold on ${nameSubject(hold)}?`,
      text: "Its data can then be deleted and erased, unless another hold covers it.",
      label: "Release",
      attributes: { class: "danger" },
      act: () => attempt(() => api.postData("/api/data/hold/release", { holdId: hold.holdId })),
    });
  }

  return { element, show: () => polling.start(), hide: () => polling.stop() };
}

const nameSubject = ({ user, chatId, tenant }) => (chatId ? `chat ${chatId}` : user ? `user ${user}` : `tenant ${tenant}`);

function createErasure(erasure) {
  const { erasureId, state, reason, requestedBy, requestedAt, doneAt, erased = [], kept = [], problem } = erasure;
  const isDone = state === "done";
  const save = () => saveData(JSON.stringify(erasure, null, 2), `erasure-${erasureId}.json`);
  const asked = `requested ${formatDate(requestedAt)} by ${requestedBy}${reason ? ` · ${reason}` : ""}`;
  return createElement(
    "li",
    {},
    createElement("h4", {}, nameSubject(erasure), isDone ? null : createMark("in progress", "warn")),
    createElement("p", { class: "about" }, isDone ? `${asked} · done ${formatDate(doneAt)}` : asked),
    problem ? createElement("p", { class: "problem" }, problem) : null,
    createItems("Erased", erased, ({ name, count }) => `${count} ${spell(name)}`),
    createItems("Kept", kept, ({ name, what, reason: why }) => `${spell(name)}: ${what} (${why})`),
    isDone
      ? createElement(
          "div",
          { class: "actions" },
          createButton("Save receipt", save, {
            "data-focus": erasureId,
            "aria-label": `Save receipt: ${nameSubject(erasure)}`,
          }),
        )
      : null,
  );
}

const spell = (name) => name.replaceAll("_", " ");

function createItems(label, items, describe) {
  if (!items.length) return null;
  const list = createElement("ul", {}, ...items.map((item) => createElement("li", {}, describe(item))));
  return createElement("div", {}, createElement("p", {}, label), list);
}

function createExportForm() {
  const user = createElement("input", { type: "text", autocomplete: "off", maxlength: 128 });
  const submit = async () => {
    const archive = await api.exportData(user.value);
    saveData(archive, `${user.value || "me"}.tar`);
  };
  const hint = "empty: your own data. For gigabytes, use headrace data export";
  return createFoldedForm("Export", [createField("Of user", user, hint)], "Save archive", submit);
}

/** Create a form that names what something is done with; `submit({user | chat | tenant, reason})` does it. */
function createRequestForm(title, kinds, label, submit, { needsReason = false } = {}) {
  const name = createElement("input", { type: "text", autocomplete: "off", required: true, maxlength: 128 });
  const reason = createElement("input", { type: "text", autocomplete: "off", maxlength: 256, required: needsReason });
  const hint = createElement("small", {}, NAME_HINTS.user);
  const what = createSelect("What", kinds, "user", () => (hint.textContent = NAME_HINTS[what.select.value]));
  const field = createElement("label", {}, "Name", hint, name);
  const why = createField("Reason", reason, "a ticket or matter, no details: it is kept");
  const take = () => submit({ [what.select.value]: name.value.trim(), ...(reason.value && { reason: reason.value }) });
  return createFoldedForm(title, [what.element, field, why], label, take);
}
