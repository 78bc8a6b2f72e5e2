// What a screen reader says by itself: whole paragraphs and changes of state, never single tokens.

const WAIT_MS = 1000; // paragraphs that end within a second are one announcement
const CHARS_MAX = 4000; // of one announcement; the page holds the rest

let waiting = [];
let timer;

export function announce(text) {
  waiting.push(text);
  timer ??= setTimeout(speak, WAIT_MS);
}

function speak() {
  const said = waiting.join("\n").slice(0, CHARS_MAX);
  waiting = [];
  timer = undefined;
  document.getElementById("announcer").textContent = said;
}
