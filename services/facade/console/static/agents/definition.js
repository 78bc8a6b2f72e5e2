// Reads and changes the text of a definition, as the form beside it does.

/** The fields of the form: where each stands in the definition, and whether it is a list. */
export const FIELDS = {
  key: { label: "Key", path: ["key"], hint: "letters, digits, _ . -" },
  name: { label: "Name", path: ["name"] },
  description: { label: "Description", path: ["description"], hint: "one sentence" },
  mode: { label: "Mode", path: ["mode"], options: ["ONESHOT", "REACT", "PLAN_EXECUTE", "CUSTOM", "REMOTE"] },
  providerKey: { label: "Provider", path: ["modelConfig", "providerKey"], isOffered: true },
  model: { label: "Model", path: ["modelConfig", "model"], isOffered: true },
  prompt: { label: "System prompt", isLong: true },
  tools: { label: "Tools", path: ["toolConfig", "backends"], isList: true },
  subagents: { label: "Sub-agents", path: ["subagents"], isList: true },
  skills: { label: "Skills", path: ["skills"], isList: true },
};

const SECTIONS = { ONESHOT: "plain", REACT: "react", CUSTOM: "custom" };

/** Return the object that the text is; null where it is none, or has multi-line prompts, which are no plain JSON. */
export function parseDefinition(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

export const formatDefinition = (definition) => JSON.stringify(definition, null, 2);

/** Return where a field stands; null for the prompt of an agent that plans, whose stages have one each. */
export function findPath(id, definition) {
  if (id !== "prompt") return FIELDS[id].path;
  const section = SECTIONS[definition.mode];
  return section ? [section, "systemPrompt"] : null;
}

/** Return a field's text, lists with commas between. */
export function readField(id, definition) {
  const value = findPath(id, definition)?.reduce((at, name) => at?.[name], definition);
  return Array.isArray(value) ? value.join(", ") : (value ?? "").toString();
}

/** Change a field; one that is emptied is taken out. A mode that has a section of its own gets it. */
export function writeField(id, definition, text) {
  const path = findPath(id, definition);
  if (!path) return;
  const value = FIELDS[id].isList ? text.split(/[\s,]+/).filter(Boolean) : text;
  const inner = path.slice(0, -1).reduce((at, name) => (at[name] = isObject(at[name]) ? at[name] : {}), definition);
  if (value.length) inner[path.at(-1)] = value;
  else delete inner[path.at(-1)];
  const section = id === "mode" && SECTIONS[text];
  if (section) definition[section] ??= {};
}

/** Return the field of the form that a problem's path is about; undefined where the form has none. */
export function findField(problem, definition) {
  return Object.keys(FIELDS).find((id) => {
    const path = findPath(id, definition)?.join(".");
    return path && `${problem}.`.startsWith(`${path}.`);
  });
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
