/** More updates than can be told apart: how many each lane has, column by column, the darker the more. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { Table } from "../parts.js";
import { authorName, brief, colour, count, percent } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {{key: string, name: string, place: number, updates: number, start: number, counts: number[]}} Lane */

/** Lanes with what they are called, and their colours' places, those of a cluster together. @param {any} density @param {Ledger} ledger @param {string} by @returns {Lane[]} */
export function lanesOf(density, ledger, by) {
  /** @type {Map<string, number>} */
  const places = new Map((ledger.clusters?.clusters ?? []).map((/** @type {any} */ each) => [String(each.served), each.place]));
  const lanes = density.lanes.map((/** @type {any} */ lane, /** @type {number} */ row) => {
    const place = by === "client" ? ledger.cluster(lane.name) : by === "server" ? row : (places.get(lane.name) ?? Number(lane.name));
    const name = by === "client" ? authorName(lane.name) : by === "server" ? brief(lane.name) : place < 0 ? "no cluster" : `cluster ${place + 1}`;
    return { ...lane, key: lane.name, name, place };
  });
  return lanes.sort((/** @type {Lane} */ a, /** @type {Lane} */ b) => a.place - b.place || (a.key < b.key ? -1 : 1));
}

/**
 * @param {CanvasRenderingContext2D} pen @param {Lane[]} lanes @param {number} columns
 * @param {{left: number, top: number, width: number, lot: number}} room Pixels.
 */
export function drawDensity(pen, lanes, columns, { left, top, width, lot }) {
  const most = Math.max(1, ...lanes.map((lane) => Math.max(...lane.counts)));
  const wide = width / columns;
  lanes.forEach((lane, row) => {
    pen.fillStyle = colour(lane.place);
    lane.counts.forEach((number, column) => {
      if (!number) return;
      pen.globalAlpha = 0.15 + 0.85 * (Math.log1p(number) / Math.log1p(most));
      pen.fillRect(left + (lane.start + column) * wide, top + row * lot + lot * 0.08, Math.max(wide, 1), Math.max(1, lot * 0.84));
    });
  });
  pen.globalAlpha = 1;
}

/** @param {{lanes: Lane[], density: any, by: string}} properties */
export const Counts = ({ lanes, density, by }) => {
  const { columns, low, high, found, left_out: leftOut } = density;
  const begins = Array.from({ length: columns }, (_, column) => String(Math.ceil(low + ((high - low + 1) * column) / columns)));
  return html`<${Table} name="updates-by-lane" caption=${`How many updates each has${leftOut ? `; ${count(leftOut)} with fewer are left out` : ""}. The CSV has them column by column.`}
    head=${[{ name: by }, { name: "updates", number: true }, { name: "share", number: true }]} more=${begins}
    rows=${lanes.map((lane) => [
      by === "client" ? html`<a class="mono" href=${`#/clients/${encodeURIComponent(lane.key)}`}>${lane.name}</a>` : lane.name,
      count(lane.updates),
      percent(lane.updates / found),
    ])}
    plain=${lanes.map((lane) => [
      lane.key, lane.updates, lane.updates / found, ...Array(lane.start).fill(0), ...lane.counts, ...Array(columns - lane.start - lane.counts.length).fill(0),
    ])} />`;
};
