/** Who learns from whom: the clusters that follow from it, as a matrix and as a list. */
import { html, useEffect, useRef, useState } from "../vendor/htm-3.1.1/preact.js";
import { approvals, periods, way } from "../clustering.js";
import { Author, Chart, Chip, Empty, Table, painting, penOf, shade } from "../parts.js";
import { authorName, colour, count, number, numberOf } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {import("../clustering.js").Stay} Stay */

const MOST = 256; // clients in the matrix

/** @param {{ledger: Ledger}} properties */
export function Clusters({ ledger }) {
  const updates = ledger.list();
  const clusters = ledger.clusters?.clusters ?? [];
  if (!clusters.length || updates.length < 3)
    return html`<h1>Clusters</h1><${Empty} title="There are no clusters yet."><p>They follow from who learns from whom: let two clients publish several times, with <code>dag-acfl client run my_client.py</code>.</p><//>`;
  const counts = approvals(ledger, updates);
  /** @type {string[]} */
  const authors = clusters.flatMap((/** @type {any} */ each) => each.authors).filter((/** @type {string} */ each) => counts.has(each)).slice(0, MOST);
  const over = periods(ledger, updates);
  const at = over.map((each) => each.last);
  /** @type {{author: string, stays: Stay[]}[]} */
  const movers = authors.map((author) => ({ author, stays: way(over, author) })).filter(({ stays }) => stays.length > 1);
  return html`<h1>Clusters</h1>
    <p>${numberOf(clusters.length, "group")} of clients that learn from one another, found in the latest approvals by Louvain's method; modularity ${number(ledger.clusters.modularity)}, at most ${number(1 - 1 / clusters.length, 2)} with so many equal groups. Nobody told the ledger how many there are.</p>
    <h2>Who learns from whom</h2>
    <${Matrix} ledger=${ledger} authors=${authors} counts=${counts} />
    <${Table} name="clusters" caption="The clusters; each keeps its number and colour while most of its clients stay in it." head=${[{ name: "cluster" }, { name: "clients", number: true }, { name: "models taken from inside", number: true }, { name: "from outside", number: true }, { name: "mean accuracy", number: true }, { name: "who", text: true }]}
      rows=${clusters.map((/** @type {any} */ each) => [
        html`<${Chip} place=${each.place} />${each.place + 1}`, each.authors.length, count(each.approvals_inside), count(each.approvals_outside), number(meanAccuracy(ledger, each.authors)),
        html`${each.authors.slice(0, 12).map((/** @type {string} */ author) => html`<${Author} ledger=${ledger} author=${author} /> `)}${each.authors.length > 12 ? `and ${each.authors.length - 12} more` : ""}`,
      ])}
      plain=${clusters.map((/** @type {any} */ each) => [each.place + 1, each.authors.length, each.approvals_inside, each.approvals_outside, meanAccuracy(ledger, each.authors) ?? "", each.authors.join(" ")])} />
    ${over.length > 2 &&
    html`<h2>Over time</h2>
      <p class="quiet">In each part of the updates that this page holds, by who learnt from whom in it alone. Pure: of the models that were averaged, the share from the client's own cluster as it is now; its own left out.</p>
      <${Chart} name="clusters-over-time" x="updates" data=${[at, over.map((each) => each.groups)]} series=${[{ name: "clusters of at least two clients", colour: colour(0), width: 2 }]} />
      <${Chart} name="modularity-over-time" x="updates" data=${[at, over.map((each) => each.modularity), over.map((each) => each.pure)]} series=${[{ name: "modularity", colour: colour(0), width: 2 }, { name: "pure", colour: colour(2), width: 2 }]} />
      <h2>Who was with whom</h2>
      <${Ways} ledger=${ledger} authors=${authors} over=${over} />
      ${movers.length === 0 && html`<p>No client has been with others than now.</p>`}
      ${movers.length > 0 && html`<${Table} name="moves" caption="Clients that were with others before, and until which update." size=${20} head=${[{ name: "client" }, { name: "now" }, { name: "its way", text: true }]}
        rows=${movers.map(({ author, stays }) => [html`<${Author} ledger=${ledger} author=${author} />`, ledger.cluster(author) + 1, html`${stays.map((/** @type {Stay} */ stay) => html`<${Chip} place=${stay.place} />${stayed(stay)} `)}`])}
        plain=${movers.map(({ author, stays }) => [author, ledger.cluster(author) + 1, stays.map(stayed).join("; ")])} />`}`}`;
}

/** @param {Ledger} ledger @param {string[]} authors */
function meanAccuracy(ledger, authors) {
  const wanted = new Set(authors);
  const found = ledger.clients.filter((each) => wanted.has(each.author) && each.metrics.accuracy !== undefined).map((each) => each.metrics.accuracy);
  return found.length ? found.reduce((sum, each) => sum + each, 0) / found.length : null;
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
    canvas.style.width = `${edge + tall}px`;
    const pen = penOf(canvas, edge + tall, tall);
    pen.font = "10px ui-monospace, monospace";
    const most = Math.max(1, ...authors.flatMap((author) => [...(counts.get(author)?.values() ?? [])]));
    const soft = shade("--soft");
    authors.forEach((author, row) => {
      if (edge > 50) {
        pen.globalAlpha = 1;
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
  });
  const over = (/** @type {any} */ event) => {
    const box = event.target.getBoundingClientRect();
    const [column, row] = [event.clientX - box.left - edge, event.clientY - box.top].map((each) => Math.floor(each / cell));
    const [author, other] = [authors[row], authors[column]];
    setSaid(author && other ? `${authorName(author)} has averaged ${numberOf(counts.get(author)?.get(other) ?? 0, "update")} of ${authorName(other)}` : "");
  };
  const open = (/** @type {any} */ event) => {
    const author = authors[Math.floor((event.clientY - event.target.getBoundingClientRect().top) / cell)];
    if (author) location.hash = `#/clients/${encodeURIComponent(author)}`;
  };
  const pairs = authors.flatMap((author) => [...(counts.get(author) ?? [])].map(([other, times]) => [author, other, times]));
  return html`<div class="wide" tabindex="0" role="group" aria-label="Who learns from whom"><canvas ref=${place} onPointerMove=${over} onClick=${open} role="img" aria-label="Who learns from whom; the table below it has the figures"></canvas></div>
    <p class="quiet" role="status">${said || "A row is a client that learns, a column one that it learns from; red lies across clusters; a click opens the client. Only updates that this page holds are counted."}</p>
    <details><summary>As a table</summary>
      <${Table} name="approvals" caption="How often a client's updates were trained from another's." head=${[{ name: "learns" }, { name: "from" }, { name: "times", number: true }]}
        rows=${pairs.map(([author, other, times]) => [html`<${Author} ledger=${ledger} author=${author} />`, html`<${Author} ledger=${ledger} author=${other} />`, times])} plain=${pairs} />
    </details>`;
}

/** @param {Stay} stay */
const stayed = ({ last, place }) => `${place < 0 ? "alone" : place + 1} to #${count(last)}`;

/** A row for each client, a column for each part of the updates, in the colour of those it was with. @param {{ledger: Ledger, authors: string[], over: import("../clustering.js").Period[]}} properties */
function Ways({ ledger, authors, over }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const row = Math.max(2, Math.min(14, Math.floor(420 / Math.max(1, authors.length))));
  const edge = row >= 10 ? 100 : 2;
  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (place.current);
    return painting(canvas, () => {
      const width = canvas.clientWidth;
      const pen = penOf(canvas, width, row * authors.length);
      pen.font = "10px ui-monospace, monospace";
      const lot = (width - edge) / over.length;
      authors.forEach((author, at) => {
        pen.fillStyle = colour(ledger.cluster(author));
        if (edge > 50) pen.fillText(authorName(author), 2, row * (at + 0.5), edge - 8);
        over.forEach(({ places }, column) => {
          const found = places.get(author);
          if (found === undefined) return;
          pen.fillStyle = colour(found);
          pen.fillRect(edge + lot * column, row * at, Math.max(1, lot - 1), Math.max(1, row - 1));
        });
      });
    });
  }, [authors.join(), over]);
  return html`<div class="drawing"><canvas ref=${place} class="ways" role="img" aria-label="Whom each client was with over time; the table below names those that moved"></canvas></div>
    <p class="quiet">A row is a client, from left to right in time; its colour is the cluster of those that it learnt from and that learnt from it then, grey where nobody did.</p>`;
}
