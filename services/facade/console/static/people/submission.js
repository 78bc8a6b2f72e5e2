// Submits a form: its fields are disabled until the outcome is known, and stay disabled once the answer counts.

const STATUS_TEXTS = {
  accepted: "Sent.",
  voted: "Sent. More approvals are required.",
  duplicate: "Someone else answered first.",
  expired: "Too late: the run is no longer waiting.",
  unmatched: "The run is not waiting for this.",
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
