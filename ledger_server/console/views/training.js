/** Any metric that clients report, or two, over updates, time or bytes: the mean, each cluster, or each client. */
import { html, useEffect, useState } from "../vendor/htm-3.1.1/preact.js";
import { Chart, Choice, Empty } from "../parts.js";
import { authorName, colour, count } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {import("../ledger.js").Update} Update */

const BY = { mean: "mean of clients", cluster: "clusters", client: "clients" };
const ACROSS = { updates: "updates", time: "time", bytes: "bytes" };
const MOST_LINES = 40;

/** What `meanOver` gives. @type {import("../figure.js").Series[]} */
export const MEAN = [
  { name: "mean", colour: colour(0), width: 2 },
  { name: "mean − deviation", colour: colour(5), dash: true },
  { name: "mean + deviation", colour: colour(5), dash: true },
];

/**
 * A metric's mean over the clients, as each one's newest update states it, after every update.
 *
 * @param {Update[]} updates @param {string} metric @param {(update: Update) => number} x
 */
export function meanOver(updates, metric, x) {
  /** @type {Map<string, number>} */
  const held = new Map();
  const columns = /** @type {number[][]} */ ([[], [], [], []]);
  // Sums are kept up, as this is drawn ten times a second; of differences from the first value, or large ones would round.
  let [sum, squares, first] = [0, 0, NaN];
  for (const update of updates) {
    const value = update.metrics[metric];
    if (value === undefined) continue;
    if (!held.size) first = value;
    const [now, before] = [value - first, held.get(update.author) ?? 0];
    held.set(update.author, now);
    sum += now - before;
    squares += now ** 2 - before ** 2;
    const mean = first + sum / held.size;
    const deviation = Math.sqrt(Math.max(0, squares / held.size - (sum / held.size) ** 2));
    columns[0].push(x(update));
    columns[1].push(mean);
    columns[2].push(mean - deviation);
    columns[3].push(mean + deviation);
  }
  return columns;
}

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function Training({ ledger, filters }) {
  const [whole, setWhole] = useState(/** @type {Update[] | null} */ (null));
  const isLong = ledger.length > 4000;
  const asked = Math.floor(ledger.end / 500);
  useEffect(() => {
    if (isLong) void ledger.part(0, ledger.end).then(setWhole).catch(() => {});
    else if (ledger.updates.size < ledger.length) for (let first = 0; first < ledger.length; first += 1000) void ledger.part(first, first + 1000).catch(() => {});
  }, [isLong, asked]);
  const updates = isLong ? (whole ?? []) : ledger.list();
  const names = [...new Set(updates.flatMap((each) => Object.keys(each.metrics)))].filter((name) => !name.startsWith("_")).sort();
  const metric = filters.get("metric") ?? (names.includes("accuracy") ? "accuracy" : names[0]);
  const by = filters.get("by") ?? "cluster";
  const across = filters.get("across") ?? "updates";
  const beside = filters.get("beside") ?? "";
  if (!names.length)
    return html`<h1>Training</h1><${Empty} title="No client reports a metric yet."><p>A client's <code>evaluate</code> returns them, such as <code>{"accuracy": 0.93}</code>; see <code>dag-acfl client init my_client.py</code>.</p><//>`;
  const round = 2 * (ledger.genesis.model?.size ?? 0); // the average that a client fetches, and the model that it publishes
  const x = (/** @type {Update} */ each) => (across === "time" ? each.at / 1000 : across === "bytes" ? (each.arrival * round) / 1e6 : each.arrival);
  const label = across === "bytes" ? "MB of models that clients have fetched and published" : across;
  const { data, series } = both(lines(ledger, updates, metric, by, x), beside && beside !== metric ? lines(ledger, updates, beside, by, x) : null, metric, beside);
  return html`<h1>Training</h1>
    <div class="tools">
      <${Choice} name="metric" label="Metric" value=${metric} options=${Object.fromEntries(names.map((name) => [name, name]))} />
      <${Choice} name="beside" label="beside it" value=${beside} options=${{ "": "–", ...Object.fromEntries(names.map((name) => [name, name])) }} />
      <${Choice} name="by" label="of" value=${by} options=${BY} />
      <${Choice} name="across" label="over" value=${across} options=${ACROSS} />
    </div>
    <${Chart} name=${`${metric}-by-${by}`} x=${label} isTime=${across === "time"} data=${data} series=${series} />
    <p class="quiet">As clients report it, each on its own data; a line's value is the mean of its clients' newest updates.
      ${isLong && updates.length > 1 ? ` One update in ${count(updates[1].arrival - updates[0].arrival)} is shown.` : ""} Drag across the picture to zoom, double-click to see all; a click on a name hides its line.</p>`;
}

/** @typedef {{data: (number | null)[][], series: import("../figure.js").Series[]}} Lines */

/** Two figures in one picture, the second dashed. @param {Lines} one @param {Lines | null} other @param {string} metric @param {string} beside @returns {Lines} */
function both(one, other, metric, beside) {
  if (!other) return one;
  const xs = /** @type {number[]} */ ([...new Set([...one.data[0], ...other.data[0]])]).sort((a, b) => a - b);
  const columns = [one, other].flatMap(({ data }) => {
    const rows = new Map(data[0].map((each, row) => [each, row]));
    return data.slice(1).map((column) => xs.map((each) => column[rows.get(each) ?? -1] ?? null));
  });
  const series = [
    ...one.series.map((each) => ({ ...each, name: `${metric}, ${each.name}` })),
    ...other.series.map((each) => ({ ...each, name: `${beside}, ${each.name}`, dash: true })),
  ];
  return { data: [xs, ...columns], series };
}

/** @param {Ledger} ledger @param {Update[]} updates @param {string} metric @param {string} by @param {(update: Update) => number} x @returns {Lines} */
function lines(ledger, updates, metric, by, x) {
  if (by === "mean") return { data: meanOver(updates, metric, x), series: MEAN };
  const keyOf = (/** @type {Update} */ each) => (by === "client" ? each.author : `${ledger.cluster(each.author)}`);
  /** @type {Map<string, Update[]>} */
  const groups = new Map();
  for (const update of updates) {
    if (update.metrics[metric] === undefined) continue;
    const group = groups.get(keyOf(update));
    if (group) group.push(update);
    else groups.set(keyOf(update), [update]);
  }
  const keys = [...groups.keys()].sort().slice(0, MOST_LINES);
  const xs = [...new Set(updates.filter((each) => each.metrics[metric] !== undefined).map(x))].sort((a, b) => a - b);
  const columns = keys.map((key) => {
    const [at, mean] = meanOver(/** @type {Update[]} */ (groups.get(key)), metric, x);
    const found = new Map(at.map((each, place) => [each, mean[place]]));
    return xs.map((each) => found.get(each) ?? null);
  });
  return {
    data: [xs, ...columns],
    series: keys.map((key) => ({
      name: by === "client" ? authorName(key) : Number(key) < 0 ? "no cluster yet" : `cluster ${Number(key) + 1}`,
      colour: colour(by === "client" ? ledger.cluster(key) : Number(key)),
    })),
  };
}
