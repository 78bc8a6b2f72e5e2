// The tab's title: how many gates wait for an answer, the page, the program.

let pageName = "";
let waitingCount = "";

function updateTitle() {
  const count = waitingCount ? `(${waitingCount}) ` : "";
  document.title = `${count}${pageName ? `${pageName} – ` : ""}Headrace`;
}

export function setPageTitle(name) {
  pageName = name;
  updateTitle();
}

/** Show a count before the title; an empty text shows none. */
export function setWaitingCount(count) {
  waitingCount = count;
  updateTitle();
}
