// Draws stacked bars as SVG; a table beside it says the same to who does not see it.

const SVG = "http://www.w3.org/2000/svg";

const [WIDTH, HEIGHT, GAP] = [720, 180, 0.25];

function createShape(tag, attributes, ...children) {
  const shape = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
  shape.append(...children);
  return shape;
}

/** Create a chart of `bars`, each { label, parts }, where a part is { series, value, title }; `series` counts from 0. */
export function createBarChart(label, bars) {
  const heights = bars.map(({ parts }) => parts.reduce((sum, part) => sum + part.value, 0));
  const most = Math.max(...heights) || 1;
  const step = WIDTH / bars.length;
  const shapes = bars.flatMap(({ label: bar, parts }, index) => {
    let top = HEIGHT;
    return parts.map(({ series, value, title }) => {
      const height = (value / most) * HEIGHT;
      top -= height;
      const place = { x: (index + GAP / 2) * step, y: top, width: step * (1 - GAP), height };
      const told = createShape("title", {}, `${bar} · ${title}`);
      return createShape("rect", { ...place, class: `series-${series}` }, told);
    });
  });
  return createShape(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none", // as wide as there is room, and as high on a telephone
      role: "img",
      "aria-label": label,
    },
    ...shapes,
    createShape("line", { x1: 0, y1: HEIGHT, x2: WIDTH, y2: HEIGHT, class: "axis" }),
  );
}
