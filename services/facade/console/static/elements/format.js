// Numbers and times as people read them.

const whole = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

const UNITS = ["B", "KiB", "MiB", "GiB"];

export const count = (number, word) => `${whole.format(number)} ${word}${number === 1 ? "" : "s"}`;
export const atTime = (ms) => clock.format(ms);
export const onDay = (ms) => day.format(ms);
export const seconds = (ms) => `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;

export function size(bytes) {
  const unit = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), UNITS.length - 1);
  return `${whole.format(Math.round((bytes / 1024 ** unit) * 10) / 10)} ${UNITS[unit]}`;
}

/** What a run has spent. */
export function usage(spent) {
  const parts = [`${whole.format(spent.inputTokens)} tokens in`, `${whole.format(spent.outputTokens)} out`];
  if (spent.reasoningTokens) parts.push(`${whole.format(spent.reasoningTokens)} of them reasoning`);
  if (spent.cachedTokens) parts.push(`${whole.format(spent.cachedTokens)} cached`);
  parts.push(count(spent.modelCalls, "model call"), count(spent.toolCalls, "tool call"));
  if (spent.costUsd) parts.push(`$${spent.costUsd.toFixed(4)}`);
  return parts.join(" · ") + (spent.estimated ? " (estimated)" : "");
}

/** What a live run may still spend. */
export function budget(left) {
  const parts = [count(left.modelCalls, "model call"), count(left.toolCalls, "tool call"), seconds(left.timeMs)];
  if (left.tokens !== undefined) parts.push(count(left.tokens, "token"));
  if (left.costUsd !== undefined) parts.push(`$${left.costUsd.toFixed(4)}`);
  return `left: ${parts.join(" · ")}`;
}

/** The first `max` characters on one line. */
export function short(text, max) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max)}…` : line;
}
