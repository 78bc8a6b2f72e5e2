// Submits a form: its fields are disabled until the outcome is known, and stay disabled once the answer counts.

const STATUS_TEXTS = {
  accepted: "Sent.",
  voted: "Sent. Others must approve too.",
  duplicate: "Somebody else has answered first.",
  expired: "Too late: the run waits no more.",
  unmatched: "The run does not wait for this.",
};

/** Call `submit`, which returns a SubmitResponse, with `fieldset` disabled, and show the outcome in `problem`. */
export async function submitForm(fieldset, problem, submit) {
  fieldset.disabled = true;
  problem.textContent = "";
  try {
    const { status } = await submit();
    problem.textContent = STATUS_TEXTS[status] ?? status;
  } catch (error) {
    problem.textContent = error.message;
    fieldset.disabled = false;
  }
}
