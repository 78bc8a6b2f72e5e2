import { useState } from "react";

import { Gate } from "./gate.jsx";
import { Message } from "./message.jsx";
import { useAgent } from "./use_agent.js";

/** One thread with one agent. */
export function Chat({ url, questions = [] }) {
  const { messages, interrupts, isRunning, problem, ask, answer, stop } = useAgent(url);
  const [text, setText] = useState(questions[0] ?? "");

  function send(event) {
    event.preventDefault();
    ask(text);
    setText("");
  }

  const results = new Map(messages.filter(({ role }) => role === "tool").map((one) => [one.toolCallId, one.content]));
  return (
    <>
      <section aria-label="Messages" aria-busy={isRunning}>
        {messages.map((message) => (
          <Message key={message.id} message={message} results={results} />
        ))}
      </section>
      {interrupts.map((interrupt) => (
        <Gate key={interrupt.id} interrupt={interrupt} onAnswer={(payload) => answer(interrupt, payload)} />
      ))}
      {problem && <p className="problem" role="alert">{problem}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} required />
        <button disabled={isRunning || interrupts.length > 0}>Send</button>
        {isRunning && <button type="button" onClick={stop}>Stop reading</button>}
      </form>
    </>
  );
}
