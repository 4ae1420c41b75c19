/** Who takes part: when each was last seen, how it does, and what is odd about it. */
import { html } from "../vendor/htm-3.1.1/preact.js";
import { approvals, periods, way } from "../clustering.js";
import { Author, Chart, Chip, Copy, Empty, Link, Table, Updates } from "../parts.js";
import { authorName, colour, count, number, numberOf, since, time } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger}} properties */
export function Clients({ ledger }) {
  const clients = ledger.clients.filter((each) => each.depth > 0);
  if (!clients.length) return html`<h1>Clients</h1><${Empty} title="Nobody has published yet."><p><code>dag-acfl client run my_client.py --server ${location.origin} --state site-0</code></p><//>`;
  const at = new Map(ledger.list().map((each) => [each.author, each.at]));
  const alarms = Map.groupBy(ledger.alarms, (each) => each.author);
  const given = contributions(ledger);
  const affected = new Map((ledger.quarantine?.clients ?? []).map((/** @type {any} */ each) => [each.author, each]));
  const state = (/** @type {string} */ author) => affected.get(author)?.state ?? (alarms.get(author) ?? []).map((each) => each.kind).join(", ");
  const deepest = clients.reduce((most, each) => Math.max(most, each.depth), 0);
  return html`<h1>Clients</h1>
    <${Table} name="clients" caption="Each client's newest update and what it says of itself." head=${[{ name: "client" }, { name: "cluster" }, { name: "last seen" }, { name: "updates", number: true }, { name: "accuracy", number: true }, { name: "examples", number: true }, { name: "newest" }, { name: "behind", number: true }, { name: "taken by others", number: true }, { name: "weight", number: true }, { name: "ε stated", number: true }, { name: "alarms, quarantine" }]}
      rows=${clients.map((each) => [
        html`<${Author} ledger=${ledger} author=${each.author} />`,
        ledger.cluster(each.author) < 0 ? "–" : html`<${Chip} place=${ledger.cluster(each.author)} />${ledger.cluster(each.author) + 1}`,
        since(at.get(each.author) ?? Date.parse(each.created_at)), count(each.sequence + 1), number(each.metrics.accuracy), count(each.num_examples),
        html`<${Link} id=${each.newest} />`, count(deepest - each.depth), count(given.get(each.author)?.times ?? 0), number(given.get(each.author)?.weight ?? 0, 1), spent(each), html`<span class="bad">${state(each.author)}</span>`,
      ])}
      plain=${clients.map((each) => [each.author, ledger.cluster(each.author) + 1, each.created_at, each.sequence + 1, each.metrics.accuracy ?? "", each.num_examples, each.newest, deepest - each.depth, given.get(each.author)?.times ?? 0, given.get(each.author)?.weight ?? 0, each.metrics._dp_epsilon ?? "", state(each.author)])} />
    <p class="quiet">Behind: how many updates farther from genesis the deepest update is than its newest. Taken: how often the updates of others that this page holds were trained from its own; weight: for each of these, one part
      of as many as there were models. Privacy: the ε that it says its training has spent so far (differential privacy); nobody can check that.</p>`;
}

/** What others have made of each client's updates. @param {Ledger} ledger */
function contributions(ledger) {
  /** @type {Map<string, {times: number, weight: number}>} */
  const found = new Map();
  for (const update of ledger.list())
    for (const parent of update.parents) {
      const author = ledger.updates.get(parent)?.author;
      if (!author || author === update.author || parent === 0) continue;
      const { times, weight } = found.get(author) ?? { times: 0, weight: 0 };
      found.set(author, { times: times + 1, weight: weight + 1 / update.parents.length });
    }
  return found;
}

/** @param {any} client */
const spent = ({ metrics }) => (metrics._dp_epsilon === undefined ? "–" : number(metrics._dp_epsilon, 2));

/** @param {{ledger: Ledger, one: string}} properties */
export function Client({ ledger, one }) {
  const updates = ledger.list().filter((each) => each.author === one && each.parents.length);
  const newest = ledger.clients.find((each) => each.author === one);
  const alarms = ledger.alarms.filter((each) => each.author === one);
  const affected = (ledger.quarantine?.clients ?? []).find((/** @type {any} */ each) => each.author === one);
  const cluster = ledger.cluster(one);
  const stays = way(periods(ledger, ledger.list()), one);
  if (!newest && !updates.length) return html`<h1>Client ${authorName(one)}</h1><p>Nobody of this name has published here. <a href="#/clients">All clients</a></p>`;
  const from = [...(approvals(ledger, updates).get(one) ?? [])].sort((a, b) => b[1] - a[1]);
  const measured = updates.filter((each) => each.metrics.accuracy !== undefined);
  const curve = [measured.map((each) => each.arrival), measured.map((each) => each.metrics.accuracy), measured.map((each) => each.metrics._own_accuracy ?? null)];
  const helped = gain(ledger, measured);
  return html`<h1>Client <span class="mono">${authorName(one)}</span></h1>
    <div class="tools"><${Copy} text=${one}>Copy its id<//><a href=${`#/updates?author=${encodeURIComponent(one)}`}>Its updates in the graph</a>${ledger.source.kind === "server" && html`<a href=${`#/operate?part=quarantine&subject=${encodeURIComponent(one)}`}>Quarantine it …</a>`}</div>
    <dl>
      <dt>Id</dt><dd><code>${one}</code></dd>
      <dt>Cluster</dt><dd>${cluster < 0 ? "none yet" : html`<${Chip} place=${cluster} />${cluster + 1}`}</dd>
      ${newest && html`<dt>Updates</dt><dd>${count(newest.sequence + 1)}, the last ${time(Date.parse(newest.created_at))} by its own clock</dd>`}
      ${affected && html`<dt>Quarantine</dt><dd class="bad">${affected.state}, ${count(affected.withheld)} of its updates withheld</dd>`}
      ${alarms.map((each) => html`<dt>Alarm: ${each.kind}</dt><dd class="bad">${each.detail} (${numberOf(each.count, "time")}, last in <${Link} id=${each.update} />)</dd>`)}
    </dl>
    ${helped && html`<h2>Did learning from others help it?</h2><p class="said">${helped}</p>`}
    ${curve[0].length > 1 && html`<h2>Accuracy on its own data</h2><${Chart} name="client" x="updates" data=${curve} series=${[{ name: "as published", colour: colour(cluster), width: 2 }, { name: "its own model before", colour: colour(-1), dash: true }]} />`}
    ${stays.length > 1 &&
    html`<h2>Its way between clusters</h2>
      <${Table} name="way" caption="Of those that it learnt from and that learnt from it, the cluster that most of them are in now." head=${[{ name: "from update", number: true }, { name: "to", number: true }, { name: "with cluster" }]}
        rows=${stays.map(({ first, last, place }) => [count(first), count(last), place < 0 ? "nobody" : html`<${Chip} place=${place} />${place + 1}`])} plain=${stays.map(({ first, last, place }) => [first, last, place + 1])} />`}
    <h2>Whom it learnt from</h2>
    ${from.length
      ? html`<${Table} name="learnt-from" caption="Whose updates its models were averaged from, as far as this page holds them." head=${[{ name: "client" }, { name: "cluster" }, { name: "times", number: true }]}
          rows=${from.map(([author, times]) => [html`<${Author} ledger=${ledger} author=${author} />`, ledger.cluster(author) < 0 ? "–" : ledger.cluster(author) + 1, times])} plain=${from.map(([author, times]) => [author, ledger.cluster(author) + 1, times])} />
          <p>Why from these, and not from others: the page of each of its updates says it, such as of the newest, <${Link} id=${updates[updates.length - 1].id} />.</p>`
      : html`<p class="quiet">Nobody, in the updates that this page holds.</p>`}
    <h2>Its updates</h2>
    <${Updates} ledger=${ledger} updates=${updates.slice().reverse()} name="updates" caption="Newest first, as far as this page holds them." />`;
}

/** What its updates from others' models brought on its own data, in words. @param {Ledger} ledger @param {import("../ledger.js").Update[]} measured */
function gain(ledger, measured) {
  const isOthers = (/** @type {number} */ parent, /** @type {string} */ author) => parent > 0 && ledger.updates.get(parent)?.author !== author;
  const changes = measured
    .filter((each) => each.metrics._own_accuracy !== undefined && each.parents.some((parent) => isOthers(parent, each.author)))
    .map((each) => each.metrics.accuracy - each.metrics._own_accuracy);
  if (!changes.length) return "";
  const [better, worse] = [changes.filter((each) => each > 0).length, changes.filter((each) => each < 0).length];
  const mean = changes.reduce((sum, each) => sum + each, 0) / changes.length;
  return `${count(changes.length)} of its updates began with an average that others' models were part of. After training, ${count(better)} were better on its own data than its model before, and ${count(worse)} worse: by ${mean < 0 ? "−" : "+"}${number(Math.abs(mean))} on average. Part of that is its own training.`;
}
