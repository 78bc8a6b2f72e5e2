// Formats numbers, times and sizes for people.

const integerFormat = new Intl.NumberFormat();
const percentFormat = new Intl.NumberFormat(undefined, { style: "percent" });
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dateFormat = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

const longDateFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

const monthFormat = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" });

const UNITS = ["B", "KiB", "MiB", "GiB"];

export const formatCount = (number, word) => `${integerFormat.format(number)} ${word}${number === 1 ? "" : "s"}`;
/** Format a compaction's tokens before and after, and the files that it kept. */
export const formatCompaction = ({ preTokens, postTokens, filesIncluded = [] }) =>
  `${formatCount(preTokens, "token")} → ${formatCount(postTokens, "token")} (${percentFormat.format(postTokens / preTokens)})` +
  (filesIncluded.length ? ` · files kept: ${filesIncluded.join(", ")}` : "");
export const formatTime = (ms) => timeFormat.format(ms);
/** Format a day and time, with the year if it differs; times of another place have its time zone. */
export function formatDate(ms, timeZone) {
  if (!timeZone) return (new Date(ms).getFullYear() === new Date().getFullYear() ? dateFormat : longDateFormat).format(ms);
  const parts = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
  return new Intl.DateTimeFormat(undefined, { ...parts, timeZone, timeZoneName: "short" }).format(ms);
}
/** Format a day for a heading, with words for the days close to today. */
export function formatDay(ms) {
  const days = (new Date().setHours(0, 0, 0, 0) - new Date(ms).setHours(0, 0, 0, 0)) / 86_400_000;
  if (days < 0.5) return "Today";
  if (days < 1.5) return "Yesterday";
  return days < 7.5 ? "Last 7 days" : monthFormat.format(ms);
}
export const formatSeconds = (ms) => `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;

export const formatMs = (ms) => (ms < 1000 ? `${integerFormat.format(Math.round(ms))} ms` : formatSeconds(ms));
const NANO_PER_USD = 1_000_000_000;
/** Format billionths of a US dollar; small amounts keep four digits. */
export const formatUsd = (nanoUsd) => `$${(nanoUsd / NANO_PER_USD).toFixed(nanoUsd && nanoUsd < NANO_PER_USD ? 4 : 2)}`;

/** Format how long ago something began, in its largest unit. */
export function formatAge(ms) {
  const minutes = Math.floor((Date.now() - ms) / 60_000);
  if (minutes < 1) return "less than a minute";
  if (minutes < 60) return formatCount(minutes, "minute");
  if (minutes < 48 * 60) return formatCount(Math.floor(minutes / 60), "hour");
  return formatCount(Math.floor(minutes / (24 * 60)), "day");
}

export function formatSize(bytes) {
  const unit = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), UNITS.length - 1);
  return `${integerFormat.format(Math.round((bytes / 1024 ** unit) * 10) / 10)} ${UNITS[unit]}`;
}

/** Format the usage of a run. */
export function formatUsage(spent) {
  const parts = [
    `${integerFormat.format(spent.inputTokens)} tokens in`,
    `${integerFormat.format(spent.outputTokens)} out`,
  ];
  if (spent.reasoningTokens) parts.push(`${integerFormat.format(spent.reasoningTokens)} of them reasoning`);
  if (spent.cachedTokens) parts.push(`${integerFormat.format(spent.cachedTokens)} cached`);
  parts.push(formatCount(spent.modelCalls, "model call"), formatCount(spent.toolCalls, "tool call"));
  if (spent.costUsd) parts.push(`$${spent.costUsd.toFixed(4)}`);
  return parts.join(" · ") + (spent.estimated ? " (estimated)" : "");
}

/** Format the remaining budget of a live run. */
export function formatBudget(left) {
  const parts = [
    formatCount(left.modelCalls, "model call"),
    formatCount(left.toolCalls, "tool call"),
    formatSeconds(left.timeMs),
  ];
  if (left.tokens !== undefined) parts.push(formatCount(left.tokens, "token"));
  if (left.costUsd !== undefined) parts.push(`$${left.costUsd.toFixed(4)}`);
  return `left: ${parts.join(" · ")}`;
}

/** Put the first `max` characters on one line. */
export function shortenText(text, max) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max)}…` : line;
}
