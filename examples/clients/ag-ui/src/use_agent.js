import { HttpAgent } from "@ag-ui/client";
import { useEffect, useMemo, useState } from "react";

import { resumingFetch } from "./resuming_fetch.js";

const createId = () => crypto.randomUUID(); // there on https and on this machine

/** A thread with the agent at `url`: its messages as they stream, and what its run waits for. */
export function useAgent(url) {
  const agent = useMemo(() => new HttpAgent({ url, threadId: createId(), fetch: resumingFetch() }), [url]);
  const [messages, setMessages] = useState([]);
  const [interrupts, setInterrupts] = useState([]);
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState("");

  useEffect(() => {
    const onMessagesChanged = ({ messages }) => setMessages([...messages]);
    const { unsubscribe } = agent.subscribe({ onMessagesChanged });
    return () => {
      unsubscribe();
      agent.abortRun();
    };
  }, [agent]);

  /** Run the agent until its run ends or waits; without an end where the reader stops. */
  async function run(parameters) {
    setRunning(true);
    setProblem("");
    setInterrupts([]);
    try {
      await agent.runAgent(parameters, { onRunErrorEvent: ({ event }) => setProblem(event.message) });
    } catch (error) {
      setProblem(error.message);
    } finally {
      setInterrupts([...agent.pendingInterrupts]);
      setRunning(false);
    }
  }

  return {
    ...{ messages, interrupts, isRunning, problem },
    ask(content) {
      agent.addMessage({ id: createId(), role: "user", content });
      return run();
    },
    answer: ({ id }, payload) => run({ resume: [{ interruptId: id, status: "resolved", payload }] }),
    stop: () => agent.abortRun(),
  };
}
