// Claims a form for this tab while somebody fills it in, and shows in other tabs who does, and until when.
//
// The claim is renewed while the form has the focus in a visible window; otherwise it is released, or expires.

import { createButton, createElement } from "../elements/dom.js";
import { formatTime } from "../elements/format.js";
import * as api from "../server/api.js";
import { getHolder } from "../server/holder.js";

const LEASE_MS = 60_000;
const RENEW_MS = 20_000;

export class Claim {
  #form = null;
  #others = null; // {by, until} of another client's claim
  #isHeld = false;
  #isClosed = false;
  #renewal = 0;
  #takeover = 0;

  constructor(runId, gateId) {
    this.gate = { runId, gateId, holder: getHolder() };
    this.element = createElement("p", { class: "claim", role: "status" });
  }

  /** Claim the gate when `form`, a form or a frame's fieldset, gets the focus. */
  watch(form) {
    this.#form = form;
    form.addEventListener("focusin", () => this.#claim());
    form.addEventListener("focusout", (event) => form.contains(event.relatedTarget) || this.#leave());
    // When a frame gets the focus, its page only learns that it has lost it.
    const watchFrame = () => {
      if (this.#isClosed) removeEventListener("blur", watchFrame);
      else if (form.contains(document.activeElement)) this.#claim();
    };
    addEventListener("blur", watchFrame);
    this.#showOthers();
  }

  /** Apply an event gate.step of the gate. */
  applyStep({ step, by, holder, until }) {
    const isOthers = step === "claimed" && holder !== this.gate.holder;
    if (step === "claimed" || step === "released") this.#setOthers(isOthers ? { by, until } : null);
  }

  close() {
    this.#isClosed = true;
    this.#isHeld = false;
    clearTimeout(this.#renewal);
    clearTimeout(this.#takeover);
    this.element.remove();
  }

  #claim() {
    if (this.#isHeld || this.#isClosed) return;
    this.#isHeld = true;
    this.#renew();
  }

  async #renew() {
    try {
      await api.claimGate({ ...this.gate, leaseMs: LEASE_MS });
      this.#setOthers(null);
    } catch (error) {
      this.#isHeld = false;
      const { claimedBy: by, until } = error.details ?? {};
      if (error.reason === "CLAIMED") this.#setOthers({ by, until: Number(until) });
      return; // any other problem shows when the form is sent, which needs no claim
    }
    this.#renewal = setTimeout(() => {
      if (document.hasFocus() && this.#form.contains(document.activeElement)) this.#renew();
      else this.#isHeld = false;
    }, RENEW_MS);
  }

  #leave() {
    // The fields of a form that is being sent lose the focus, too, and so do those of a window that is left for another.
    if (!this.#isHeld || !document.hasFocus() || this.#findFields().disabled) return;
    this.#isHeld = false;
    clearTimeout(this.#renewal);
    api.releaseGate(this.gate).catch(() => {}); // it ends by itself
  }

  #setOthers(others) {
    if (this.#isClosed) return;
    this.#others = others;
    this.#showOthers();
  }

  #showOthers() {
    clearTimeout(this.#takeover);
    const isElsewhere = this.#others !== null && this.#others.until > Date.now();
    if (this.#form && isElsewhere !== this.#isBlocked) this.#block(isElsewhere);
    this.element.textContent = "";
    if (!isElsewhere) return;
    const { by, until } = this.#others;
    this.element.append(`Being answered by ${by} until ${formatTime(until)}, on another page.`);
    this.#takeover = setTimeout(() => this.#offer(), until - Date.now());
  }

  /** Let this tab take the gate over, since the other's claim is over. */
  #offer() {
    const takeOver = () => {
      this.#others = null;
      this.#showOthers();
      this.#form.querySelector("input, textarea, select, iframe")?.focus();
    };
    this.element.replaceChildren("No one is answering it now. ", createButton("Take over", takeOver));
  }

  get #isBlocked() {
    return this.#form.dataset.claimed === "elsewhere";
  }

  #block(isElsewhere) {
    if (isElsewhere) this.#form.dataset.claimed = "elsewhere";
    else delete this.#form.dataset.claimed;
    this.#findFields().disabled = isElsewhere;
  }

  #findFields() {
    return this.#form.matches("fieldset") ? this.#form : this.#form.querySelector("fieldset");
  }
}
