/** Who learns from whom: the clusters that follow from it, as a matrix and as a list. */
import { html, useEffect, useRef, useState } from "../vendor/htm-3.1.1/preact.js";
import { Author, Chart, Chip, Empty, Table } from "../parts.js";
import { authorName, colour, count, number } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

const MOST = 256; // clients in the matrix
const WINDOWS = 24; // parts of the shown updates for "over time"

/** @param {{ledger: Ledger}} properties */
export function Clusters({ ledger }) {
  const updates = ledger.list();
  const clusters = ledger.clusters?.clusters ?? [];
  if (!clusters.length || updates.length < 3)
    return html`<h1>Clusters</h1><${Empty} title="There are no clusters yet."><p>They follow from who learns from whom: let two clients publish several times, with <code>dag-acfl client run my_client.py</code>.</p><//>`;
  const counts = approvals(ledger, updates);
  const authors = clusters.flatMap((/** @type {any} */ each) => each.authors).filter((/** @type {string} */ each) => counts.has(each)).slice(0, MOST);
  const over = overTime(ledger, updates);
  return html`<h1>Clusters</h1>
    <p>${count(clusters.length)} groups of clients that learn from one another, found in the latest approvals by Louvain's method; modularity ${number(ledger.clusters.modularity)}, at most ${number(1 - 1 / clusters.length, 2)} with so many equal groups. Nobody told the ledger how many there are.</p>
    <h2>Who learns from whom</h2>
    <${Matrix} ledger=${ledger} authors=${authors} counts=${counts} />
    <${Table} name="clusters" caption="The clusters, largest first." head=${[{ name: "cluster" }, { name: "clients", number: true }, { name: "models taken from inside", number: true }, { name: "from outside", number: true }, { name: "mean accuracy", number: true }, { name: "who", text: true }]}
      rows=${clusters.map((/** @type {any} */ each, /** @type {number} */ place) => [
        html`<${Chip} place=${place} />${place + 1}`, each.authors.length, count(each.approvals_inside), count(each.approvals_outside), number(meanAccuracy(ledger, each.authors)),
        html`${each.authors.slice(0, 12).map((/** @type {string} */ author) => html`<${Author} ledger=${ledger} author=${author} /> `)}${each.authors.length > 12 ? `and ${each.authors.length - 12} more` : ""}`,
      ])}
      plain=${clusters.map((/** @type {any} */ each, /** @type {number} */ place) => [place + 1, each.authors.length, each.approvals_inside, each.approvals_outside, meanAccuracy(ledger, each.authors) ?? "", each.authors.join(" ")])} />
    ${over[0].length > 2 &&
    html`<h2>How pure learning was over time</h2>
      <p class="quiet">Of the models that were averaged, the share that came from the client's own cluster as it is now; its own left out.</p>
      <${Chart} name="purity" x="updates" data=${over} series=${[{ name: "from the own cluster", colour: colour(0), width: 2 }]} />`}`;
}

/** @param {Ledger} ledger @param {string[]} authors */
function meanAccuracy(ledger, authors) {
  const wanted = new Set(authors);
  const found = ledger.clients.filter((each) => wanted.has(each.author) && each.metrics.accuracy !== undefined).map((each) => each.metrics.accuracy);
  return found.length ? found.reduce((sum, each) => sum + each, 0) / found.length : null;
}

/** How often each client's updates name another client's. @param {Ledger} ledger @param {import("../ledger.js").Update[]} updates */
function approvals(ledger, updates) {
  /** @type {Map<string, Map<string, number>>} */
  const counts = new Map();
  for (const update of updates) {
    if (!update.parents.length) continue;
    const row = counts.get(update.author) ?? new Map();
    counts.set(update.author, row);
    for (const parent of update.parents) {
      const author = ledger.updates.get(parent)?.author;
      if (author && author !== update.author && parent > 0) row.set(author, (row.get(author) ?? 0) + 1);
    }
  }
  return counts;
}

/** @param {Ledger} ledger @param {import("../ledger.js").Update[]} updates */
function overTime(ledger, updates) {
  const columns = /** @type {number[][]} */ ([[], []]);
  const lot = Math.max(1, Math.ceil(updates.length / WINDOWS));
  for (let at = 0; at < updates.length; at += lot) {
    let [inside, all] = [0, 0];
    for (const update of updates.slice(at, at + lot))
      for (const parent of update.parents) {
        const author = ledger.updates.get(parent)?.author;
        if (!author || author === update.author || parent === 0) continue;
        all += 1;
        inside += Number(ledger.cluster(author) === ledger.cluster(update.author));
      }
    if (!all) continue;
    columns[0].push(updates[Math.min(at + lot, updates.length) - 1].arrival);
    columns[1].push(inside / all);
  }
  return columns;
}

/** @param {{ledger: Ledger, authors: string[], counts: Map<string, Map<string, number>>}} properties */
function Matrix({ ledger, authors, counts }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [said, setSaid] = useState("");
  const cell = Math.max(3, Math.min(26, Math.floor(520 / Math.max(1, authors.length))));
  const edge = cell >= 10 ? 100 : 2; // for the names
  const tall = cell * authors.length + 1;
  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (place.current);
    const scale = devicePixelRatio || 1;
    canvas.style.width = `${edge + tall}px`;
    canvas.style.height = `${tall}px`;
    canvas.width = Math.round((edge + tall) * scale);
    canvas.height = Math.round(tall * scale);
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = "10px ui-monospace, monospace";
    pen.textBaseline = "middle";
    const most = Math.max(1, ...authors.flatMap((author) => [...(counts.get(author)?.values() ?? [])]));
    const soft = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
    authors.forEach((author, row) => {
      if (edge > 50) {
        pen.fillStyle = colour(ledger.cluster(author));
        pen.fillText(authorName(author), 2, cell * (row + 0.5), edge - 8);
      }
      authors.forEach((other, column) => {
        const times = counts.get(author)?.get(other) ?? 0;
        pen.globalAlpha = 1;
        pen.fillStyle = soft;
        pen.fillRect(edge + cell * column, cell * row, cell - 1, cell - 1);
        if (!times) return;
        pen.globalAlpha = 0.25 + (0.75 * times) / most;
        pen.fillStyle = ledger.cluster(author) === ledger.cluster(other) ? colour(ledger.cluster(author)) : "#b3261e";
        pen.fillRect(edge + cell * column, cell * row, cell - 1, cell - 1);
      });
    });
    pen.globalAlpha = 1;
  });
  const over = (/** @type {any} */ event) => {
    const box = event.target.getBoundingClientRect();
    const [column, row] = [event.clientX - box.left - edge, event.clientY - box.top].map((each) => Math.floor(each / cell));
    const [author, other] = [authors[row], authors[column]];
    setSaid(author && other ? `${authorName(author)} has averaged ${count(counts.get(author)?.get(other) ?? 0)} updates of ${authorName(other)}` : "");
  };
  const pairs = authors.flatMap((author) => [...(counts.get(author) ?? [])].map(([other, times]) => [author, other, times]));
  return html`<div class="wide" tabindex="0" role="group" aria-label="Who learns from whom"><canvas ref=${place} onPointerMove=${over} role="img" aria-label="Who learns from whom; the table below it has the figures"></canvas></div>
    <p class="quiet" role="status">${said || "A row is a client that learns, a column one that it learns from; red lies across clusters. Only updates that this page holds are counted."}</p>
    <details><summary>As a table</summary>
      <${Table} name="approvals" caption="How often a client's updates were trained from another's." head=${[{ name: "learns" }, { name: "from" }, { name: "times", number: true }]}
        rows=${pairs.map(([author, other, times]) => [html`<${Author} ledger=${ledger} author=${author} />`, html`<${Author} ledger=${ledger} author=${other} />`, times])} plain=${pairs} />
    </details>`;
}
