/** Which updates are shown: by client, cluster, server, time, and whether they are tips or tainted; all of it in the address. */
import { html, useEffect, useRef } from "../vendor/htm-3.1.1/preact.js";
import { filter } from "../address.js";
import { authorName } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

const NO_CLUSTER = 1e9; // the server has none there
const NAMES = ["author", "cluster", "server", "since", "until", "tips", "tainted"];

/** Minutes, as an address has them, in ms since 1970. @param {string | null} text */
const ms = (text) => (text && !Number.isNaN(Date.parse(`${text}Z`)) ? String(Date.parse(`${text}Z`)) : "");

/**
 * What is asked of the server, as the end of a query; empty where nothing is filtered.
 *
 * @param {Ledger} ledger @param {URLSearchParams} filters @param {boolean} isThen Of a past state only the page knows the tips.
 */
export function asked(ledger, filters, isThen) {
  const cluster = filters.get("cluster");
  /** @type {Record<string, string>} */
  const found = {
    author: (filters.get("author") ?? "").trim().toLowerCase(),
    cluster: cluster ? String(clusterOf(ledger, cluster)?.served ?? NO_CLUSTER) : "",
    server: (filters.get("server") ?? "").trim().toLowerCase(),
    since: ms(filters.get("since")),
    until: ms(filters.get("until")),
    tips: filters.get("tips") === "1" && !isThen ? "true" : "",
    tainted: filters.get("tainted") === "1" ? "true" : "",
  };
  return Object.entries(found)
    .filter(([, value]) => value)
    .map(([name, value]) => `&${name}=${encodeURIComponent(value)}`)
    .join("");
}

/** The cluster that a client is in, by the beginning of its id: a number may mean another one in somebody else's page. @param {Ledger} ledger @param {string} author */
const clusterOf = (ledger, author) => author && (ledger.clusters?.clusters ?? []).find((/** @type {any} */ { authors }) => authors.some((/** @type {string} */ each) => each.startsWith(author)));

const put = (/** @type {string} */ name) => (/** @type {any} */ event) => filter({ [name]: event.target.value.trim(), end: "" });

/** What somebody types stays, whatever comes meanwhile. @param {{name: string, label: string, value: string, type?: string, placeholder?: string}} properties */
function Field({ name, label, value, type = "text", placeholder }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (field.current && document.activeElement !== field.current) field.current.value = value;
  }, [value]);
  return html`<label>${label} <input ref=${field} type=${type} size="12" placeholder=${placeholder} onChange=${put(name)} /></label>`;
}

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function Filters({ ledger, filters }) {
  const set = NAMES.filter((name) => filters.get(name));
  const check = (/** @type {string} */ name) => (/** @type {any} */ event) => filter({ [name]: event.target.checked ? "1" : "", end: "" });
  const clusters = ledger.clusters?.clusters ?? [];
  const cluster = clusterOf(ledger, filters.get("cluster") ?? "");
  return html`<details class="filters" open=${set.length > 0}>
    <summary>Only some updates${set.length > 0 ? ` (${set.length})` : ""}</summary>
    <div class="tools">
    <${Field} name="author" label="of client" value=${filters.get("author") ?? ""} placeholder="key:…" />
    <label>of cluster
      <select onChange=${put("cluster")}>
        <option value="">any</option>
        ${clusters.map((/** @type {any} */ each) => html`<option value=${authorName(each.authors[0])} selected=${each === cluster}>${each.place + 1}</option>`)}
      </select></label>
    <${Field} name="server" label="by server" value=${filters.get("server") ?? ""} />
    <${Field} name="since" label="from (UTC)" value=${filters.get("since") ?? ""} type="datetime-local" />
    <${Field} name="until" label="to (UTC)" value=${filters.get("until") ?? ""} type="datetime-local" />
    <label><input type="checkbox" checked=${filters.get("tips") === "1"} onChange=${check("tips")} /> tips only</label>
    <label><input type="checkbox" checked=${filters.get("tainted") === "1"} onChange=${check("tainted")} /> tainted only</label>
    ${set.length > 0 && html`<button type="button" onClick=${() => filter(Object.fromEntries([...NAMES, "span", "end"].map((name) => [name, ""])))}>Clear</button>`}
    </div>
  </details>`;
}
