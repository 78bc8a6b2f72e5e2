// Drawing at most once for each frame of the screen: a hundred deltas a second are sixty changes of the page.

const waiting = new Set();

/** Call `draw` before the next frame, once however often it is asked for. */
export function soon(draw) {
  if (!waiting.size) requestAnimationFrame(drawAll);
  waiting.add(draw);
}

function drawAll() {
  const draws = [...waiting];
  waiting.clear();
  for (const draw of draws) draw();
}
