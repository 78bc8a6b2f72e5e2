// The end of the conversation stays in sight for who is there; who reads further up is left in peace.

const NEAR_PX = 80;

/** Keep `scroller` at its end while `content` grows; `toLatest` is the button that leads back there. */
export function keepAtEnd(scroller, content, toLatest) {
  let isAtEnd = true;
  const distance = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  const toEnd = () => scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
  const look = () => {
    isAtEnd = distance() < NEAR_PX;
    toLatest.hidden = isAtEnd;
  };
  scroller.addEventListener("scroll", look);
  toLatest.addEventListener("click", toEnd);
  new ResizeObserver(() => (isAtEnd ? toEnd() : look())).observe(content);
}
