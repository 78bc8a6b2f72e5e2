// Creates the fields that say when a schedule runs: repeated, in words or as cron; once; or when another system posts.

import { createElement } from "../elements/dom.js";
import { createField, createSelect } from "../elements/page.js";
import { createFields } from "../people/fields.js";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** Repetitions in words: the cron of each, of `minute`, `hour`, `weekday` and `day`, and the pattern that finds it again. */
const REPEATS = {
  hourly: ["Every hour", ({ minute }) => `${minute} * * * *`, /^(?<minute>\d+) \* \* \* \*$/],
  daily: ["Every day", ({ minute, hour }) => `${minute} ${hour} * * *`, /^(?<minute>\d+) (?<hour>\d+) \* \* \*$/],
  workdays: ["Monday to Friday", ({ minute, hour }) => `${minute} ${hour} * * 1-5`, /^(?<minute>\d+) (?<hour>\d+) \* \* 1-5$/],
  weekly: ["Every week", ({ minute, hour, weekday }) => `${minute} ${hour} * * ${weekday}`, /^(?<minute>\d+) (?<hour>\d+) \* \* (?<weekday>[0-6])$/],
  monthly: ["Every month", ({ minute, hour, day }) => `${minute} ${hour} ${day} * *`, /^(?<minute>\d+) (?<hour>\d+) (?<day>\d+) \* \*$/],
};

const KINDS = {
  ...Object.fromEntries(Object.entries(REPEATS).map(([kind, [label]]) => [kind, label])),
  ...{ cron: "By cron expression", once: "Once", webhook: "When another system posts" },
};

const pad = (number) => String(number).padStart(2, "0");

function findRepeat(cron) {
  for (const [kind, [label, , pattern]] of Object.entries(REPEATS)) {
    const found = pattern.exec(cron);
    if (found) return { kind, label, ...found.groups };
  }
  return null;
}

/** Describe when a schedule runs, in words where its cron is one of them. */
export function describeTimes({ cron, onWebhook }) {
  const parts = [];
  const found = findRepeat(cron);
  if (found) {
    const { kind, minute, hour, weekday, day } = found;
    const at = hour === undefined ? `at minute ${minute}` : `at ${hour}:${pad(minute)}`;
    const label = kind === "weekly" ? `Every ${DAYS[weekday]}` : kind === "monthly" ? `Monthly on day ${day}` : found.label;
    parts.push(`${label} ${at}`);
  } else if (cron) parts.push(cron);
  if (onWebhook) parts.push("when another system posts");
  return parts.join(", and ") || "Once";
}

/** Create the fields, with the times of a schedule that there is. */
export function createWhenFields({ cron = "", timeZone, onceAt, onWebhook } = {}) {
  const found = findRepeat(cron);
  const kind = found?.kind ?? (cron ? "cron" : onceAt ? "once" : onWebhook ? "webhook" : "daily");
  const repeat = createSelect("Runs", KINDS, kind, show);
  const weekday = createSelect("On", { ...DAYS }, found?.weekday ?? "1", describe);
  const day = createElement("input", { type: "number", min: 1, max: 31, oninput: describe });
  day.value = found?.day ?? 1;
  const time = createElement("input", { type: "time", oninput: describe });
  time.value = found?.hour ? `${pad(found.hour)}:${pad(found.minute)}` : "09:00";
  const minute = createElement("input", { type: "number", min: 0, max: 59, oninput: describe });
  minute.value = found?.minute ?? 0;
  const text = createElement("input", { type: "text", maxlength: 256, placeholder: "30 9 * * 1-5", autocomplete: "off", oninput: describe });
  text.value = cron;
  const zone = createElement("input", { type: "text", maxlength: 64, list: "time-zones" });
  zone.value = timeZone || Intl.DateTimeFormat().resolvedOptions().timeZone;
  const options = Intl.supportedValuesOf("timeZone").map((value) => createElement("option", { value }));
  const zones = createElement("datalist", { id: "time-zones" }, ...options);
  const once = createFields({ properties: { onceAt: { type: "integer", format: "unix-ms", title: "At" } }, required: ["onceAt"] }, { onceAt });
  const summary = createElement("p", { class: "about", role: "status" });
  const fields = {
    weekly: weekday.element,
    monthly: createField("Day of the month", day),
    time: createField("Time", time),
    hourly: createField("Minute", minute),
    cron: createField("Cron", text, "minute, hour, day, month, weekday"),
    zone: createField("Time zone", zone),
    once: once.elements[0],
  };

  function show() {
    const chosen = repeat.select.value;
    const isTimed = ["daily", "workdays", "weekly", "monthly"].includes(chosen);
    const isShown = { [chosen]: true, time: isTimed, zone: isTimed || chosen === "hourly" || chosen === "cron" };
    for (const [name, field] of Object.entries(fields)) {
      field.hidden = !isShown[name];
      for (const input of field.querySelectorAll("input")) input.required = !field.hidden;
    }
    describe();
  }

  function readCron() {
    const chosen = repeat.select.value;
    if (chosen === "cron") return text.value;
    const [hour, atMinute] = time.value.split(":").map(Number);
    const given = { hour, minute: chosen === "hourly" ? minute.value : atMinute, weekday: weekday.select.value, day: day.value };
    return REPEATS[chosen]?.[1](given) ?? "";
  }

  function describe() {
    const read = readCron();
    summary.textContent = read ? `${describeTimes({ cron: read })} (${zone.value})` : "";
  }

  function read() {
    const chosen = repeat.select.value;
    if (chosen === "once") return once.read();
    return chosen === "webhook" ? { onWebhook: true } : { cron: readCron(), timeZone: zone.value };
  }

  show();
  return { elements: [repeat.element, ...Object.values(fields), zones, summary], read };
}
