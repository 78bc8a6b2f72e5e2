// Keeps the end of the conversation in sight, unless the reader has scrolled up.

const NEAR_PX = 80;

/** Keep `scroller` at its end while `content` grows; `toLatest` is the button that leads back there. */
export function keepAtEnd(scroller, content, toLatest) {
  let isAtEnd = true;
  const measureDistance = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  const scrollToEnd = () => scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
  const updateState = () => {
    isAtEnd = measureDistance() < NEAR_PX;
    toLatest.hidden = isAtEnd;
  };
  scroller.addEventListener("scroll", updateState);
  toLatest.addEventListener("click", scrollToEnd);
  new ResizeObserver(() => (isAtEnd ? scrollToEnd() : updateState())).observe(content);
}
