/** The servers of the network, as this one sees them. */
import { html, useEffect, useState } from "../vendor/htm-3.1.1/preact.js";
import { getJson } from "../api.js";
import { Table } from "../parts.js";
import { brief, count, since, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger}} properties */
export function Servers({ ledger }) {
  const [version, setVersion] = useState(/** @type {any} */ (null));
  useEffect(() => void getJson("/version").then(setVersion).catch(() => {}), []);
  const peers = ledger.peers?.items ?? [];
  /** @type {Map<string, number>} */
  const through = new Map();
  for (const update of ledger.list()) if (update.parents.length) through.set(update.server, (through.get(update.server) ?? 0) + 1);
  return html`<h1>Servers</h1>
    <dl>
      <dt>This server's key</dt><dd><code>${ledger.peers?.public_key ?? "–"}</code></dd>
      <dt>Ledger</dt><dd><code>${ledger.genesis.ledger}</code></dd>
      ${version && html`<dt>Release</dt><dd>${version.version}, commit ${version.commit}</dd>`}
      <dt>Published at it</dt><dd>${count(through.get(ledger.peers?.public_key) ?? 0)} of the ${count(ledger.list().length)} updates that this page holds</dd>
    </dl>
    <h2>Its peers</h2>
    ${peers.length
      ? html`<${Table} name="peers" caption="As this server sees them." head=${[{ name: "peer" }, { name: "address" }, { name: "key" }, { name: "state" }, { name: "last heard" }, { name: "received from it", number: true }, { name: "sent to it", number: true }, { name: "published there", number: true }]}
          rows=${peers.map((/** @type {any} */ each) => [
            each.name, each.url, html`<code title=${each.public_key}>${brief(each.public_key)}</code>`,
            each.is_banned ? html`<span class="bad">banned</span>` : !each.is_neighbour ? "through others" : each.is_reachable ? html`<span class="good">in touch</span>` : html`<span class="bad">does not answer</span>`,
            each.last_heard ? since(Date.parse(each.last_heard)) : "never", size(each.received_bytes), size(each.sent_bytes), count(through.get(each.public_key) ?? 0),
          ])}
          plain=${peers.map((/** @type {any} */ each) => [each.name, each.url, each.public_key, each.is_reachable ? "in touch" : "away", each.last_heard ?? "", each.received_bytes, each.sent_bytes, through.get(each.public_key) ?? 0])} />`
      : html`<p>None: this server keeps its ledger alone. <code>dag-acfl ledger join ${location.origin} --ledger ${ledger.genesis.ledger.slice(0, 12)}…</code> makes another one.</p>`}`;
}
