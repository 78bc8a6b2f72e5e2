import { useState } from "react";

/** What a run waits for: an approval, or a form whose fields are those of its schema. */
export function Gate({ interrupt, onAnswer }) {
  const { kind, toolName } = interrupt.metadata.headrace;
  return (
    <section className="gate" aria-label={`${toolName} waits`}>
      <p>{interrupt.message}</p>
      {kind === "approval" ? (
        <>
          <button onClick={() => onAnswer({ decision: "approve" })}>Approve</button>{" "}
          <button onClick={() => onAnswer({ decision: "reject" })}>Reject</button>
        </>
      ) : (
        <Form fields={Object.keys(interrupt.responseSchema?.properties ?? { answer: {} })} onAnswer={onAnswer} />
      )}
    </section>
  );
}

function Form({ fields, onAnswer }) {
  const [values, setValues] = useState({});

  function submit(event) {
    event.preventDefault();
    onAnswer(values);
  }

  return (
    <form onSubmit={submit}>
      {fields.map((name) => (
        <label key={name}>
          {name}{" "}
          <input
            value={values[name] ?? ""}
            onChange={(event) => setValues({ ...values, [name]: event.target.value })}
            required
          />
        </label>
      ))}
      <button>Answer</button>
    </form>
  );
}
