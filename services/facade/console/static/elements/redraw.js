// Draws at most once for each frame of the screen: a hundred deltas a second become sixty page changes.

const pendingCallbacks = new Set();

/** Call `callback` once before the next frame, however often it is scheduled. */
export function scheduleForFrame(callback) {
  if (!pendingCallbacks.size) requestAnimationFrame(runCallbacks);
  pendingCallbacks.add(callback);
}

function runCallbacks() {
  const callbacks = [...pendingCallbacks];
  pendingCallbacks.clear();
  for (const callback of callbacks) callback();
}
