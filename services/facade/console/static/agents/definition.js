// Reads and changes the text of a definition, for the form next to it.

/** The fields of the form, and where each is in the definition. */
export const PATHS = {
  key: ["key"],
  name: ["name"],
  description: ["description"],
  mode: ["mode"],
  providerKey: ["modelConfig", "providerKey"],
  model: ["modelConfig", "model"],
  prompt: [],
  tools: ["toolConfig", "backends"],
  skills: ["skills"],
  subagents: ["subagents"],
};

const SECTIONS = { ONESHOT: "plain", REACT: "react", CUSTOM: "custom" };

/** Return the object that the text is; null if it is not one, or has multi-line prompts, which are not plain JSON. */
export function parseDefinition(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

export const formatDefinition = (definition) => JSON.stringify(definition, null, 2);

/** Return the path of a field; null for the prompt of an agent that plans, because each of its stages has its own. */
export function findPath(id, definition) {
  if (id !== "prompt") return PATHS[id];
  const section = SECTIONS[definition.mode];
  return section ? [section, "systemPrompt"] : null;
}

/** Return the values of the form's fields. */
export function readFields(definition) {
  const read = (id) => findPath(id, definition)?.reduce((at, name) => at?.[name], definition);
  return Object.fromEntries(Object.keys(PATHS).map((id) => [id, read(id)]));
}

/** Change a field; one that is emptied is taken out. A mode that has a section of its own gets it. */
export function writeField(id, definition, value = "") {
  const path = findPath(id, definition);
  if (!path) return;
  const inner = path.slice(0, -1).reduce((at, name) => (at[name] = isObject(at[name]) ? at[name] : {}), definition);
  if (value.length) inner[path.at(-1)] = value;
  else delete inner[path.at(-1)];
  const section = id === "mode" && SECTIONS[value];
  if (section) definition[section] ??= {};
}

/** Return the field of the form that a problem's path is about; undefined where the form has none. */
export function findField(problem, definition) {
  return Object.keys(PATHS).find((id) => {
    const path = findPath(id, definition)?.join(".");
    return path && `${problem}.`.startsWith(`${path}.`);
  });
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
