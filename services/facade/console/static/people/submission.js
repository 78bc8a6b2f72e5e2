// A form on its way: its fields are off until it is known what became of it, and stay off once it counts.

const SAID = {
  accepted: "Sent.",
  duplicate: "Somebody else has answered first.",
  expired: "Too late: the run waits no more.",
  unmatched: "The run does not wait for this.",
};

/** Run `submit`, which gives a SubmitResponse, with `fieldset` off and `problem` telling the outcome. */
export async function sending(fieldset, problem, submit) {
  fieldset.disabled = true;
  problem.textContent = "";
  try {
    const { status } = await submit();
    problem.textContent = SAID[status] ?? status;
  } catch (error) {
    problem.textContent = error.message;
    fieldset.disabled = false;
  }
}
