// The page Recordings: plays a cassette from a local file, which is not sent anywhere.

import { announceText } from "../elements/announcer.js";
import { createButton, createElement } from "../elements/dom.js";
import { formatDate, formatSeconds } from "../elements/format.js";
import { createField, createFrame, createSelect } from "../elements/page.js";
import { BYTES_MAX, readCassette } from "../events/cassette.js";
import { Film } from "../run/film.js";

const SPEEDS = { 1: "1 ×", 4: "4 ×", 16: "16 ×", 64: "64 ×" };
const STEP_MS = 100;

export function createPage() {
  const input = createElement("input", { type: "file", accept: ".cassette,.jsonl,.json", onchange: openFile });
  const title = createElement("p", { class: "about" });
  const screen = createElement("div", { class: "screen" });
  const slider = createElement("input", { type: "range", min: 0, step: STEP_MS, "aria-label": "Time", oninput: seek });
  const time = createElement("output", { class: "time" });
  const play = createButton("Play", () => film?.toggle(), { class: "primary" });
  const speed = createSelect("Speed", SPEEDS, "1", () => film?.setSpeed(Number(speed.select.value)));
  const controls = createElement(
    "div",
    { class: "actions tools", role: "group", "aria-label": "Film", hidden: true },
    play,
    createButton("Back", () => film?.step(-1), { "aria-label": "One event back" }),
    createButton("Forward", () => film?.step(1), { "aria-label": "One event forward" }),
    slider,
    time,
    speed.element,
  );
  const { element, showProblem } = createFrame(
    {
      title: "Recordings",
      about: "Replay a recorded run. The file is read in this page and is not uploaded; `headrace record` writes one.",
      className: "film",
      tools: [createField("Cassette", input)],
    },
    title,
    controls,
    screen,
  );
  slider.addEventListener("keydown", (event) => {
    if (event.key !== " ") return;
    event.preventDefault();
    film?.toggle();
  });
  let film = null;

  async function openFile() {
    const [file] = input.files;
    if (!file) return;
    closeFilm();
    try {
      if (file.size > BYTES_MAX) throw new Error("The file is larger than 64 MiB.");
      showFilm(readCassette(await file.text()));
      showProblem(null);
    } catch (error) {
      showProblem(error);
    }
  }

  function showFilm({ header, events }) {
    film = new Film(screen, events, { onMove: showPosition, onPlay: showPlaying });
    film.setSpeed(Number(speed.select.value));
    title.textContent = `${header.agentKey ?? ""} · ${formatDate(header.at)} · ${events.length} events`;
    slider.max = Math.ceil(film.durationMs / STEP_MS) * STEP_MS;
    controls.hidden = false;
    film.seek(0);
    showPlaying(false);
    play.focus();
  }

  function closeFilm() {
    film?.close();
    film = null;
    controls.hidden = true;
    title.textContent = "";
    screen.replaceChildren();
  }

  function seek() {
    film?.seek(Number(slider.value));
  }

  function showPosition({ atMs, count, type }) {
    slider.value = atMs;
    time.textContent = `${formatSeconds(atMs)} of ${formatSeconds(film.durationMs)}`;
    // Whole seconds while it plays, so that a screen reader does not announce each tenth.
    const shown = film.isPlaying ? Math.floor(atMs / 1000) * 1000 : atMs;
    const text = `${formatSeconds(shown)} of ${formatSeconds(film.durationMs)}, event ${count}: ${type}`;
    if (!film.isPlaying || slider.dataset.shown !== String(shown)) slider.setAttribute("aria-valuetext", text);
    slider.dataset.shown = shown;
  }

  function showPlaying(isPlaying) {
    play.textContent = isPlaying ? "Pause" : "Play";
    if (!isPlaying && film?.isAtEnd) announceText("The recording is over.");
  }

  return { element, show() {}, hide: () => film?.pause() };
}
