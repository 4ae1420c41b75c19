/** Of a ledger out of a file or a simulation: which servers its updates were published at; nobody is spoken to. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { Table } from "../parts.js";
import { brief, count, time } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** Keys of the servers that updates were published at, with how many and the last. @param {Ledger} ledger */
export function issuers(ledger) {
  /** @type {Map<string, {updates: number, last: number}>} */
  const found = new Map();
  for (const update of ledger.list()) {
    if (!update.parents.length) continue;
    const { updates, last } = found.get(update.server) ?? { updates: 0, last: 0 };
    found.set(update.server, { updates: updates + 1, last: Math.max(last, update.at) });
  }
  return [...found].sort((a, b) => b[1].updates - a[1].updates);
}

/** @param {{ledger: Ledger}} properties */
export function Issuers({ ledger }) {
  const { kind, name } = ledger.source;
  const servers = issuers(ledger);
  return html`<h1>Servers</h1>
    <p>${kind === "simulation"
      ? "The servers of a simulation are virtual: there is nothing to be in touch with. Their keys are drawn from the run's seed, and have signed the receipts of its updates."
      : html`This is a copy of a ledger, out of <code>${name}</code>. The servers that have signed the receipts of its updates are not spoken to; how they are is shown by their own consoles.`}</p>
    <${Table} name="servers" caption="As far as this page holds their updates." head=${[{ name: "key" }, { name: "updates published there", number: true }, { name: "the last" }]}
      rows=${servers.map(([key, { updates, last }]) => [html`<code title=${key}>${brief(key)}</code>`, count(updates), time(last)])}
      plain=${servers.map(([key, { updates, last }]) => [key, updates, time(last)])} />`;
}
