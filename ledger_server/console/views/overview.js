/** What is going on: figures of the whole ledger, how accuracy went, and what came last. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { Author, Chart, Empty, Link, Table } from "../parts.js";
import { issuers } from "./copy.js";
import { colour, count, isVirtual, number, rfc3339, since, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {import("../ledger.js").Update} Update */

const ACTIVE_MS = 3600_000;

/** @param {number[]} values */
export function spread(values) {
  const mean = values.reduce((sum, each) => sum + each, 0) / values.length;
  return { mean, deviation: Math.sqrt(values.reduce((sum, each) => sum + (each - mean) ** 2, 0) / values.length) };
}

/** Each author's newest update among these. @param {Update[]} updates */
export function newest(updates) {
  /** @type {Map<string, Update>} */
  const found = new Map();
  for (const update of updates) if (update.parents.length) found.set(update.author, update);
  return [...found.values()];
}

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

/** @param {{ledger: Ledger}} properties */
export function Overview({ ledger }) {
  const updates = ledger.list();
  const clients = newest(updates);
  const last = updates.at(-1)?.at ?? Date.now();
  const shownAt = ledger.until === null && !isVirtual(last) ? Date.now() : last;
  const accuracies = clients.map((each) => each.metrics.accuracy).filter((each) => each !== undefined);
  const accuracy = accuracies.length ? spread(accuracies) : null;
  const active = clients.filter((each) => shownAt - each.at < ACTIVE_MS).length;
  const lately = updates.filter((each) => each.parents.length && shownAt - each.at < 60_000).length;
  const known = ledger.clients.length || clients.length;
  const peers = ledger.peers?.items ?? [];
  const reached = peers.filter((/** @type {any} */ each) => each.is_reachable).length;
  const curve = meanOver(updates, "accuracy", (each) => each.arrival);
  if (ledger.length < 2)
    return html`<h1>Nobody has published yet</h1>
      <${Empty} title="Let a first client take part:">
        <p><code>dag-acfl client init my_client.py</code> writes a client to fill in;</p>
        <p><code>dag-acfl client run my_client.py --server ${location.origin} --state site-0</code> runs it. This page shows its updates as they come.</p>
      <//>`;
  return html`<h1>Overview</h1>
    <ul class="tiles">
      <${Tile} value=${count(ledger.end - 1)} what=${noun(ledger.end - 1, "update")} more=${isVirtual(last) ? "" : `${count(lately)} in the last minute`} to="#/updates" />
      <${Tile} value=${count(known)} what=${noun(known, "client")} more=${isVirtual(last) ? "" : `${active} published in the last hour`} to="#/clients" />
      <${Tile} value=${ledger.clusters?.clusters.length ?? "–"} what=${noun(ledger.clusters?.clusters.length, "cluster")} more=${`modularity ${number(ledger.clusters?.modularity, 2)}`} to="#/clusters" />
      <${Tile} value=${number(accuracy?.mean)} what="accuracy, mean of clients" more=${accuracy ? `± ${number(accuracy.deviation)} between them` : "nobody states any"} to="#/training" />
      ${ledger.source.kind !== "server" ? html`<${Tile} value=${count(issuers(ledger).length)} what=${`${noun(issuers(ledger).length, "server")} published at`} more="this is a copy" to="#/servers" />` : html`
      <${Tile} value=${peers.length ? `${reached + 1} of ${peers.length + 1}` : "1"} what=${peers.length ? "servers in touch" : "server, alone"} more=${peers.length ? "as this one sees it" : ""} to="#/servers" />`}
      <${Tile} value=${ledger.costs ? size(ledger.costs.storage_bytes) : "–"} what="stored here" more=${ledger.costs ? `${size(ledger.costs.model_bytes)} a model` : ""} to="#/costs" />
      <${Tile} value=${count(ledger.alarms.length)} what=${noun(ledger.alarms.length, "alarm")} more=${ledger.quarantine?.decisions.length ? `${ledger.quarantine.decisions.length} quarantined or erased` : "nothing quarantined"} to="#/clients" />
    </ul>
    <p><a href="#/updates">Who learnt from whom?</a> <a href="#/clusters">Which clients belong together?</a> <a href=${ledger.source.kind === "simulation" ? "#/runs" : "#/training"}>Does it help?</a> And click any update: why was it trained from these models, and is it genuine?</p>
    ${curve[0].length > 1 &&
    html`<h2>Accuracy: mean of the clients' newest models, and its spread</h2>
      <${Chart} name="accuracy" x="updates" data=${curve} series=${[
        { name: "mean", colour: colour(0), width: 2 },
        { name: "mean − deviation", colour: colour(5), dash: true },
        { name: "mean + deviation", colour: colour(5), dash: true },
      ]} />`}
    <h2>What came last</h2>
    <${Updates} ledger=${ledger} updates=${updates.slice(-12).reverse()} name="last-updates" caption="The newest updates that are shown." />`;
}

/** The noun alone, below its number. @param {number | undefined} value @param {string} name */
const noun = (value, name) => (value === 1 ? name : `${name}s`);

/** @param {{value: any, what: string, more: string, to: string}} properties */
const Tile = ({ value, what, more, to }) =>
  html`<li class="tile"><b>${value}</b><a href=${to}>${what}</a><br /><span>${more}</span></li>`;

/**
 * Updates as a table.
 *
 * @param {{ledger: Ledger, updates: Update[], name: string, caption: string, marked?: (row: number) => boolean}} properties
 */
export function Updates({ ledger, updates, name, caption, marked }) {
  const head = [
    { name: "#", number: true },
    { name: "update" },
    { name: "client" },
    { name: "received" },
    { name: "learnt from", number: true },
    { name: "accuracy", number: true },
    { name: "step", number: true },
    { name: "examples", number: true },
  ];
  return html`<${Table} name=${name} caption=${`${caption} Learnt from: how many models were averaged, its client's own before it among them.`} head=${head} marked=${marked}
    rows=${updates.map((each) => [
      each.arrival,
      html`<${Link} id=${each.id} />`,
      html`<${Author} ledger=${ledger} author=${each.author} />`,
      html`<span title=${rfc3339(each.at)}>${since(each.at)}</span>`,
      each.parents.length,
      number(each.metrics.accuracy),
      number(each.step, 2),
      count(each.examples),
    ])}
    plain=${updates.map((each) => [
      each.arrival, each.id, each.author, rfc3339(each.at), each.parents.length, each.metrics.accuracy ?? "", each.step ?? "", each.examples,
    ])} />`;
}
