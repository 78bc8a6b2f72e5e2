// Announces whole paragraphs and changes of state to screen readers, never single tokens.

const WAIT_MS = 1000; // paragraphs that end within a second are one announcement
const CHARS_MAX = 4000; // in one announcement; the page holds the rest

let pendingTexts = [];
let timer;

export function announceText(text) {
  pendingTexts.push(text);
  timer ??= setTimeout(flushTexts, WAIT_MS);
}

function flushTexts() {
  const announcement = pendingTexts.join("\n").slice(0, CHARS_MAX);
  pendingTexts = [];
  timer = undefined;
  document.getElementById("announcer").textContent = announcement;
}
