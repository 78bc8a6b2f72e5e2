// Where a message is written: a question, or while a run is live something to tell it.

export class Composer {
  /** `send(message)` and `stop()`; a message that could not be sent comes back into the field. */
  constructor(form, { send, stop }) {
    this.send = send;
    this.form = form;
    this.message = form.elements.message;
    form.noValidate = true; // a message that was refused once may be sent again
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    form.elements.stop.addEventListener("click", stop);
    this.message.addEventListener("keydown", (event) => this.#key(event));
  }

  focus() {
    this.message.focus();
  }

  show({ isLive, canSteer }) {
    this.isReady = !isLive || canSteer;
    const { elements } = this.form;
    if (!isLive && document.activeElement === elements.stop) this.focus();
    elements.stop.hidden = !canSteer;
    elements.submit.textContent = isLive ? "Tell it" : "Ask";
    elements.submit.disabled = !this.isReady;
    this.message.placeholder = isLive ? "Tell the running agent something…" : "Ask…";
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#submit();
  }

  async #submit() {
    const text = this.message.value;
    if (!text.trim() || !this.isReady) return;
    this.message.value = "";
    this.message.setCustomValidity("");
    try {
      await this.send(text);
    } catch (error) {
      this.message.value = text;
      this.message.setCustomValidity(error.message);
      this.message.reportValidity();
    }
  }
}
