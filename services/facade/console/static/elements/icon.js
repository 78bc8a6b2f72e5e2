// Draws the console's icons: strokes on a grid of 24.

const SVG = "http://www.w3.org/2000/svg";

const PATHS = {
  agents: "M7 8h10a2 2 0 0 1 2 2v7a2 2 0 0 1-2 2H7a2 2 0 0 1-2-2v-7a2 2 0 0 1 2-2zM12 8V4M9 13v1M15 13v1",
  attach: "m20 11-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7L9.3 17a1.7 1.7 0 0 1-2.4-2.4L14.5 7",
  chats: "M4 5h16v11H9l-5 4z",
  check: "m5 12.5 4.5 4.5L19 7.5",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  edit: "M4 20h4L20 8l-4-4L4 16zM13.5 6.5l4 4",
  inbox: "M4 13h4l2 3h4l2-3h4M4 13l3-8h10l3 8v6H4z",
  menu: "M4 6h16M4 12h16M4 18h16",
  operate: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  plus: "M12 5v14M5 12h14",
  remove: "M6 6l12 12M18 6 6 18",
  schedules: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  send: "M12 19V5M6 11l6-6 6 6",
  share: "M12 14V4M8 8l4-4 4 4M5 12v8h14v-8",
  stop: "M7 7h10v10H7z",
};

/** Create an icon, which screen readers pass over: its button or link has a name of its own. */
export function createIcon(name) {
  const icon = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" })) icon.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  icon.append(path);
  return icon;
}
