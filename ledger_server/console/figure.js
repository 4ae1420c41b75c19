/** A chart as SVG, for papers: the same lines, drawn anew as vectors, dark on white, with axes and legend. */

import { rfc3339 } from "./words.js";

/** @typedef {{name: string, colour: string, dash?: boolean, width?: number}} Series */

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [720, 400, 64, 16, 16, 48];
const LEGEND_ROW = 18;
const LEGEND_COLUMNS = 4;
const MOST_TICKS = 10;

/** @param {unknown} text */
const escaped = (text) => String(text).replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);

/** Round steps between two values, about five. @param {number} low @param {number} high */
function ticks(low, high) {
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const found = [];
  const first = Math.ceil(low / step) * step;
  // Counted, not added up: a step that is nothing beside a large value would lead nowhere, for ever.
  for (let count = 0; count <= MOST_TICKS && first + count * step <= high + step * 1e-9; count++) found.push(Number((first + count * step).toPrecision(12)));
  return found;
}

/** @param {number} value */
const plain = (value) => (Math.abs(value) >= 1e4 ? Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value) : `${value}`);

/**
 * @param {{x: string, series: Series[], data: (number | null)[][], isTime?: boolean}} chart As `Chart` has it.
 * @returns {string}
 */
export function svgOf({ x, series, data, isTime = false }) {
  const [xs, ...lines] = data;
  const values = lines.flat().filter((each) => each !== null && Number.isFinite(each));
  const ends = (/** @type {(number | null)[]} */ all) => {
    const known = /** @type {number[]} */ (all.filter((each) => each !== null && Number.isFinite(each)));
    const [low, high] = [known.reduce((a, b) => Math.min(a, b), Infinity), known.reduce((a, b) => Math.max(a, b), -Infinity)];
    return low < high ? [low, high] : [low - 0.5, low + 0.5];
  };
  if (!values.length) return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}"/>`;
  const [[x0, x1], [y0, y1]] = [ends(xs), ends(values)];
  const rows = Math.ceil(series.length / LEGEND_COLUMNS);
  const px = (/** @type {number} */ value) => (LEFT + ((value - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT)).toFixed(1);
  const py = (/** @type {number} */ value) => (HEIGHT - BOTTOM - ((value - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const said = (/** @type {number} */ value) => (isTime ? rfc3339(value * 1000).slice(5, 16).replace("T", " ") : plain(value));
  const points = (/** @type {(number | null)[]} */ line) =>
    line.flatMap((value, at) => (value === null || !Number.isFinite(value) || xs[at] === null ? [] : [`${px(/** @type {number} */ (xs[at]))},${py(value)}`])).join(" ");
  const style = (/** @type {Series} */ each) => `stroke="${each.colour}" stroke-width="${each.width ?? 1.5}"${each.dash ? ' stroke-dasharray="5 4"' : ""}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT + rows * LEGEND_ROW + 8}" font-family="sans-serif" font-size="12" fill="#222">
<rect width="100%" height="100%" fill="#fff"/>
${ticks(y0, y1).map((at) => `<path d="M${LEFT} ${py(at)}H${WIDTH - RIGHT}" stroke="#ddd"/><text x="${LEFT - 8}" y="${py(at)}" dy="4" text-anchor="end">${plain(at)}</text>`).join("\n")}
${ticks(x0, x1).map((at) => `<path d="M${px(at)} ${TOP}V${HEIGHT - BOTTOM}" stroke="#eee"/><text x="${px(at)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${escaped(said(at))}</text>`).join("\n")}
<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 8}" text-anchor="middle">${escaped(x)}</text>
${lines.map((line, at) => `<polyline points="${points(line)}" fill="none" ${style(series[at])}/>`).join("\n")}
${series.map((each, at) => {
    const [left, top] = [LEFT + (at % LEGEND_COLUMNS) * 160, HEIGHT + 8 + Math.floor(at / LEGEND_COLUMNS) * LEGEND_ROW];
    return `<path d="M${left} ${top}h22" ${style(each)}/><text x="${left + 28}" y="${top + 4}">${escaped(each.name)}</text>`;
  }).join("\n")}
</svg>
`;
}
