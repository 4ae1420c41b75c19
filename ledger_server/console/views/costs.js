/** What the ledger costs here, beside the formulas of its paper. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { Table } from "../parts.js";
import { count, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger}} properties */
export function Costs({ ledger }) {
  const costs = ledger.costs;
  if (!costs) return html`<h1>Costs</h1><p class="quiet">The server does not say.</p>`;
  const rows = [
    ["traffic of a client's round", costs.bytes_per_client_round, costs.paper_bytes_per_client_round, "[DAG-ACFL Eq. 8]"],
    ["stored, all of it", costs.storage_bytes, costs.ledger_payload_bytes, "[DAG-ACFL Eq. 10]"],
    ["received since the server began", costs.received_bytes, null, ""],
    ["sent since the server began", costs.sent_bytes, null, ""],
    ["one model", costs.model_bytes, null, ""],
    [`models dropped by policy: ${count(costs.pruned_models)}`, costs.pruned_bytes, null, ""],
  ];
  return html`<h1>Costs</h1>
    <${Table} name="costs" caption="As measured on this server, and as the formula says." head=${[{ name: "what" }, { name: "measured", number: true }, { name: "by the formula", number: true }, { name: "formula" }]}
      rows=${rows.map(([what, measured, formula, name]) => [what, measured === null ? "–" : size(/** @type {number} */ (measured)), formula === null ? "" : size(/** @type {number} */ (formula)), name])}
      plain=${rows.map((row) => row.map((cell) => cell ?? ""))} />
    <p class="quiet">Evidence of selections, signatures and indexes are what the store has beyond the formula; <code>dag-acfl ledger prune</code> drops models that nobody can be offered any more.</p>`;
}
