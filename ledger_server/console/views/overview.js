/** What is going on: figures of the whole ledger, how accuracy went, and what came last. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { token } from "../api.js";
import { Chart, Empty, Updates } from "../parts.js";
import { count, isVirtual, number, size } from "../words.js";
import { issuers } from "./copy.js";
import { MEAN, meanOver } from "./training.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {import("../ledger.js").Update} Update */

const ACTIVE_MS = 3600_000;

/** @param {number[]} values */
function spread(values) {
  const mean = values.reduce((sum, each) => sum + each, 0) / values.length;
  return { mean, deviation: Math.sqrt(values.reduce((sum, each) => sum + (each - mean) ** 2, 0) / values.length) };
}

/** Each author's newest update among these. @param {Update[]} updates */
function newest(updates) {
  /** @type {Map<string, Update>} */
  const found = new Map();
  for (const update of updates) if (update.parents.length) found.set(update.author, update);
  return [...found.values()];
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
        <p><code>dag-acfl client run my_client.py --server ${location.origin}${token.get() ? " --token-file NAME.token" : ""} --state site-0</code> runs it. This page shows its updates as they come.</p>
      <//>`;
  return html`<h1>Overview</h1>
    <ul class="tiles">
      <${Tile} value=${count(ledger.end - 1)} what=${noun(ledger.end - 1, "update")} more=${isVirtual(last) ? "" : `${count(lately)} in the last minute`} to="#/updates" />
      <${Tile} value=${count(known)} what=${noun(known, "client")} more=${isVirtual(last) ? "" : `${active} published in the last hour`} to="#/clients" />
      <${Tile} value=${ledger.clusters?.clusters.length ?? "–"} what=${noun(ledger.clusters?.clusters.length, "cluster")} more=${`modularity ${number(ledger.clusters?.modularity, 2)}`} to="#/clusters" />
      <${Tile} value=${number(accuracy?.mean)} what="accuracy, mean of clients" more=${accuracy ? `± ${number(accuracy.deviation)} between them` : "nobody reports any"} to="#/training" />
      ${ledger.source.kind !== "server" ? html`<${Tile} value=${count(issuers(ledger).length)} what=${`${noun(issuers(ledger).length, "server")} published at`} more="this is a copy" to="#/servers" />` : html`
      <${Tile} value=${peers.length ? `${reached + 1} of ${peers.length + 1}` : ledger.peers ? "1" : "–"} what=${peers.length ? "servers in touch" : ledger.peers ? "server, alone" : "servers"} more=${peers.length ? "as this one sees it" : ""} to="#/servers" />`}
      <${Tile} value=${ledger.costs ? size(ledger.costs.storage_bytes) : "–"} what="stored here" more=${ledger.costs ? `${size(ledger.costs.model_bytes)} a model` : ""} to="#/costs" />
      <${Tile} value=${count(ledger.alarms.length)} what=${noun(ledger.alarms.length, "alarm")} more=${ledger.quarantine?.decisions.length ? `${ledger.quarantine.decisions.length} quarantined or erased` : "nothing quarantined"} to="#/clients" />
    </ul>
    <p><a href="#/updates">Who learnt from whom?</a> <a href="#/clusters">Which clients belong together?</a> <a href=${ledger.source.kind === "simulation" ? "#/runs" : "#/training"}>Does it help?</a> And click any update: why was it trained from these models, and is it genuine?</p>
    ${curve[0].length > 1 &&
    html`<h2>Accuracy: mean of the clients' newest models, and its spread</h2>
      <${Chart} name="accuracy" x="updates" data=${curve} series=${MEAN} />`}
    <h2>What came last</h2>
    <${Updates} ledger=${ledger} updates=${updates.slice(-12).reverse()} name="last-updates" caption="The newest updates that are shown." />`;
}

/** The noun alone, below its number. @param {number | undefined} value @param {string} name */
const noun = (value, name) => (value === 1 ? name : `${name}s`);

/** @param {{value: any, what: string, more: string, to: string}} properties */
const Tile = ({ value, what, more, to }) =>
  html`<li class="tile"><b>${value}</b><a href=${to}>${what}</a><br /><span>${more}</span></li>`;
