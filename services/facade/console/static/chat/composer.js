// Takes a message: a question, or a steering message while a run is live.

export class Composer {
  /** `send(message)` sends the text, which returns to the field if that fails; `stop()` cancels the run. */
  constructor(form, { send, stop }) {
    this.send = send;
    this.form = form;
    this.message = form.elements.message;
    form.noValidate = true; // a message that was refused once may be sent again
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#sendMessage();
    });
    form.elements.stop.addEventListener("click", stop);
    this.message.addEventListener("keydown", (event) => this.#handleKey(event));
  }

  focus() {
    this.message.focus();
  }

  /** Put a question into the field, unless there is one that was not sent yet. */
  proposeMessage(text) {
    if (!this.message.value) this.message.value = text;
    this.focus();
  }

  /** `mayAsk` is false in a chat that the user may only read. */
  updateState({ isLive, canSteer, mayAsk }) {
    this.isReady = mayAsk && (!isLive || canSteer);
    const { elements } = this.form;
    this.message.disabled = !mayAsk;
    if (!isLive && document.activeElement === elements.stop) this.focus();
    elements.stop.hidden = !canSteer || !mayAsk;
    elements.submit.textContent = isLive ? "Send" : "Ask";
    elements.submit.disabled = !this.isReady;
    this.message.placeholder = isLive ? "Send a message to the running agent…" : "Ask…";
    if (!mayAsk) this.message.placeholder = "You can only read this chat.";
  }

  #handleKey(event) {
    // Safari ends a composition before the key that ends it: 229 is a key that an input method has taken.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    this.#sendMessage();
  }

  async #sendMessage() {
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
