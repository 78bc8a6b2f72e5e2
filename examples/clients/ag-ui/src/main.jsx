// A page on AG-UI. Its address says where Headrace is: ?headrace=http://127.0.0.1:8080, else where the page is from.

import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

import { Chat } from "./chat.jsx";

const base = new URLSearchParams(location.search).get("headrace") ?? "";

function Page() {
  const [agents, setAgents] = useState({});
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");

  useEffect(() => {
    loadAgents().then((agents) => {
      setAgents(agents);
      setKey(Object.keys(agents)[0] ?? "");
    }, (error) => setProblem(String(error)));
  }, []);

  return (
    <main>
      <h1>Agents over AG-UI</h1>
      <label>
        Agent{" "}
        <select value={key} onChange={(event) => setKey(event.target.value)}>
          {Object.entries(agents).map(([key, { identity }]) => (
            <option key={key} value={key}>
              {identity.name || key}
            </option>
          ))}
        </select>
      </label>
      {problem && <p className="problem" role="alert">{problem}</p>}
      {key && <Chat key={key} url={`${base}/agui/${key}`} questions={agents[key].custom["headrace.questions"]} />}
    </main>
  );
}

async function loadAgents() {
  const response = await fetch(`${base}/agui`);
  if (!response.ok) throw new Error(`${response.url} answered ${response.status}`);
  return response.json();
}

createRoot(document.body.appendChild(document.createElement("div"))).render(<Page />);
