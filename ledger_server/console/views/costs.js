/** What the ledger costs: by kind, by client and by server, beside the formulas of its paper. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { Author, Table } from "../parts.js";
import { brief, count, numberOf, percent, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger}} properties */
export function Costs({ ledger }) {
  const costs = ledger.costs;
  if (!costs) return html`<h1>Costs</h1><p class="quiet">The server does not say.</p>`;
  const held = costs.transactions - costs.pruned_models;
  const rows = [
    ["traffic of a client's round", costs.bytes_per_client_round, costs.paper_bytes_per_client_round, "[DAG-ACFL Eq. 8]"],
    ["stored, all of it", costs.storage_bytes, costs.ledger_payload_bytes, "[DAG-ACFL Eq. 10]"],
    [`of it ${numberOf(held, "model")}`, held * costs.model_bytes, costs.transactions * costs.model_bytes, ""],
    ["of it headers, evidence, signatures, indexes", Math.max(0, costs.storage_bytes - held * costs.model_bytes), costs.ledger_payload_bytes - costs.transactions * costs.model_bytes, ""],
    ["one model", costs.model_bytes, null, ""],
    [`models dropped by policy: ${count(costs.pruned_models)}`, costs.pruned_bytes, null, ""],
  ];
  const updates = ledger.list().filter((each) => each.parents.length);
  return html`<h1>Costs</h1>
    <${Table} name="costs" caption="As measured on this server, and as the formula says." head=${[{ name: "what" }, { name: "measured", number: true }, { name: "by the formula", number: true }, { name: "formula" }]}
      rows=${rows.map(([what, measured, formula, name]) => [what, measured === null ? "–" : size(/** @type {number} */ (measured)), formula === null ? "" : size(/** @type {number} */ (formula)), name])}
      plain=${rows.map((row) => row.map((cell) => cell ?? ""))} />
    <p class="quiet">${costs.archived ? `An archive may hold the evidence of the first ${numberOf(costs.archived, "update")}. ` : ""}<code>dag-acfl ledger prune</code> drops models that nobody can be offered any more, <code>dag-acfl ledger archive</code> moves the evidence of old selections to a file.</p>
    <h2>By kind</h2>
    <${Table} name="costs-by-kind" caption="What this server has received and sent since it began, without the heads of HTTP." head=${[{ name: "what for" }, { name: "received", number: true }, { name: "sent", number: true }]}
      rows=${[...costs.kinds.map((/** @type {any} */ each) => [each.kind, size(each.received), size(each.sent)]), ["all", size(costs.received_bytes), size(costs.sent_bytes)]]}
      plain=${costs.kinds.map((/** @type {any} */ each) => [each.kind, each.received, each.sent])} />
    <h2>By client</h2>
    <${Shares} ledger=${ledger} updates=${updates} by="author" shown=${(/** @type {string} */ author) => html`<${Author} ledger=${ledger} author=${author} />`} />
    <h2>By server</h2>
    <${Shares} ledger=${ledger} updates=${updates} by="server" shown=${(/** @type {string} */ server) => html`<code title=${server}>${ledger.peers?.public_key === server ? "this server" : (ledger.peers?.items.find((/** @type {any} */ each) => each.public_key === server)?.name ?? brief(server))}</code>`} />
    <p class="quiet">A client fetches about as much as it publishes: an average for each model. What servers have sent one another stands on <a href="#/servers">Servers</a>.</p>`;
}

/** @param {{ledger: Ledger, updates: import("../ledger.js").Update[], by: "author" | "server", shown: (key: string) => any}} properties */
function Shares({ ledger, updates, by, shown }) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const update of updates) counts.set(update[by], (counts.get(update[by]) ?? 0) + 1);
  const rows = [...counts].sort((a, b) => b[1] - a[1]);
  const model = ledger.costs.model_bytes;
  return html`<${Table} name=${`costs-by-${by}`} caption="Models published, of the updates that this page holds." size=${20} head=${[{ name: by === "author" ? "client" : "server" }, { name: "updates", number: true }, { name: "models", number: true }, { name: "share", number: true }]}
    rows=${rows.map(([key, times]) => [shown(key), count(times), size(times * model), percent(times / updates.length)])} plain=${rows.map(([key, times]) => [key, times, times * model, times / updates.length])} />`;
}
