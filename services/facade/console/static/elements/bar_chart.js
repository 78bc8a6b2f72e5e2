// Draws stacked bars with axes, and names the values below the pointer. A table next to it has the same values as text.

import { createElement } from "./dom.js";

const HEIGHT = 220;
const SERIES = 7;
const FONT = "12px system-ui, sans-serif";

/** Resolve a colour of the styles, which the canvas cannot read as a variable. */
function readColour(element, name) {
  element.style.color = `var(${name})`;
  return getComputedStyle(element).color;
}

/**
 * Create a chart of `bars`, each { label, parts }, where a part is { series, value, name }; `series` counts from 0 to 6.
 * `format` writes a value.
 */
export function createBarChart(label, bars, format) {
  const place = createElement("div", { class: "chart", role: "img", "aria-label": label });
  const tip = createElement("div", { class: "tip", hidden: true });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const sums = bars.map(({ parts }) => {
    const values = new Array(SERIES).fill(0);
    for (const { series, value } of parts) values[series] += value;
    return values;
  });
  const isWhole = sums.every((values) => values.every((value) => Number.isInteger(value) && value < 1000));
  const used = [...new Array(SERIES).keys()].filter((series) => sums.some((values) => values[series]));
  let chart = null;

  function showTip({ cursor: { idx, left } }) {
    tip.hidden = idx === null || idx === undefined || left < 0;
    if (tip.hidden) return;
    const rows = bars[idx].parts.map(({ series, name, value }) =>
      createElement("div", {}, createElement("span", { class: `swatch series-${series}` }), `${name} `, createElement("strong", {}, format(value))),
    );
    const total = bars[idx].parts.reduce((sum, { value }) => sum + value, 0);
    tip.replaceChildren(createElement("div", {}, `${bars[idx].label} `, createElement("strong", {}, format(total))), ...rows);
    const space = chart.over.clientWidth - tip.offsetWidth - 12;
    tip.style.left = `${chart.over.offsetLeft + (left > space ? Math.max(left - tip.offsetWidth - 12, 0) : left + 12)}px`;
  }

  async function draw() {
    const { default: UPlot } = await import("../vendor/uplot.js");
    if (!place.isConnected) return;
    const probe = createElement("span", {});
    place.replaceChildren(probe);
    const [ink, line] = ["--muted", "--line"].map((name) => readColour(probe, name));
    const colours = used.map((series) => readColour(probe, `--series-${series}`));
    // A bar of all series is drawn first, and shorter ones of fewer series over it.
    const stacks = used.map((_, at) => sums.map((values) => used.slice(at).reduce((sum, series) => sum + values[series], 0)));
    const axis = { stroke: ink, font: FONT, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const nameBars = (_, at) => at.map((index) => bars[index]?.label ?? "");
    const paths = UPlot.paths.bars({ size: [0.7, 48] });
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] }, y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
      axes: [
        { ...axis, grid: { show: false }, space: 90, incrs: [1, 2, 5, 7, 14, 30, 61], values: nameBars },
        { ...axis, size: 70, incrs: isWhole ? [1, 2, 5, 10, 20, 50, 100] : undefined, values: (_, at) => at.map(format) },
      ],
      series: [{}, ...colours.map((fill) => ({ fill, width: 0, paths, points: { show: false } }))],
      hooks: { setCursor: [showTip] },
    };
    chart = new UPlot(options, [bars.map((_, index) => index), ...stacks], place);
    place.append(tip);
  }

  const observer = new ResizeObserver(() => {
    if (!place.isConnected) return observer.disconnect();
    if (chart) chart.setSize({ width: place.clientWidth, height: HEIGHT });
    else draw();
  });
  observer.observe(place);
  dark.addEventListener("change", () => place.isConnected && draw());
  return place;
}
