/** A message of the thread; a call of a tool is shown with its result, which comes as a message of its own. */
export function Message({ message, results }) {
  const { role, content, toolCalls = [] } = message;
  switch (role) {
    case "user":
    case "reasoning":
      return <p className={`message ${role}`}>{content}</p>;
    case "assistant":
      return (
        <>
          {content && <p className="message assistant">{content}</p>}
          {toolCalls.map((call) => (
            <ToolCall key={call.id} call={call} result={results.get(call.id)} />
          ))}
        </>
      );
    case "activity":
      return <Plan tasks={message.content.tasks ?? []} />;
    default:
      return null;
  }
}

function ToolCall({ call, result }) {
  return (
    <details className="tool" open={result === undefined}>
      <summary>
        {call.function.name} {result === undefined ? "…" : "✓"}
      </summary>
      <code>{call.function.arguments}</code>
      {result !== undefined && <pre className="message">{result}</pre>}
    </details>
  );
}

function Plan({ tasks }) {
  return (
    <ol className="message">
      {tasks.map(({ taskId, description, status }) => (
        <li key={taskId}>
          {description} ({status})
        </li>
      ))}
    </ol>
  );
}
