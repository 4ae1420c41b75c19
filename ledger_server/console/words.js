/** How things are written: ids, numbers, times, and each author's and cluster's colour. */

/** @param {string} id */
export const brief = (id) => id.slice(0, 8);

/** An author by the kind of its id and eight digits. @param {string} author */
export const authorName = (author) => {
  const at = author.indexOf(":");
  return `${author.slice(0, at + 1)}${author.slice(at + 1, at + 9)}`;
};

/** @param {number | null | undefined} value @param {number} [digits] */
export const number = (value, digits = 3) =>
  value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(digits);

/** @param {number} share */
export const percent = (share) => `${(100 * share).toFixed(1)} %`;

const WHOLE = new Intl.NumberFormat("en");

/** @param {number} value */
export const count = (value) => WHOLE.format(value);

/** As people read it: 1 update, 2 updates, 1,000 updates. @param {number} value @param {string} noun */
export const numberOf = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  let value = bytes;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${value.toFixed(place && value < 100 ? 1 : 0)} ${units[place]}`;
}

/** A simulation's clock counts from 0, in rounds or seconds; a real one did so in 1970. */
const VIRTUAL_MS = 1e11;

/** @param {number} ms */
export const isVirtual = (ms) => ms < VIRTUAL_MS;

/** @param {number} ms */
const virtualTime = (ms) => `virtual time ${WHOLE.format(ms / 1000)}`;

/** @param {number} ms */
export function since(ms) {
  if (isVirtual(ms)) return virtualTime(ms);
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

const LATEST_MS = 253_402_300_799_999; // of the year 9999, as the server writes it; a Date of much later throws

/** RFC 3339, whatever a client or a server said. @param {number} ms */
export const rfc3339 = (ms) => new Date(Math.min(ms, LATEST_MS)).toISOString();

/** @param {number} ms */
export const time = (ms) => (isVirtual(ms) ? virtualTime(ms) : rfc3339(ms).replace("T", " ").slice(0, 19) + " UTC");

/** Okabe and Ito's colours, which people with colour-blindness tell apart, and then lighter ones. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6bc4", "#8c6d31", "#5b7f2b", "#b5475b"];

/** @param {number} place */
export const colour = (place) => (place < 0 ? "#8a949e" : COLOURS[place % COLOURS.length]);
