/** The servers as they see one another: who is in touch with whom, who lacks how much, and why. */
import { html, useEffect, useState } from "../vendor/htm-3.1.1/preact.js";
import { getJson } from "../api.js";
import { Choice, Table } from "../parts.js";
import { count, numberOf, since, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {{name: string, url: string | null, public_key: string, transactions: number | null, peers: any[], problem: string}} Server */

const AGAIN_MS = 6000; // the server asks its peers no more often than every 5 s
const [SIDE, RADIUS] = [300, 105];

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function Servers({ ledger, filters }) {
  const [version, setVersion] = useState(/** @type {any} */ (null));
  const [seen, setSeen] = useState(/** @type {Server[]} */ ([]));
  useEffect(() => void getJson("/version").then(setVersion).catch(() => {}), []);
  useEffect(() => {
    const ask = () => void getJson("/v1/view/servers").then(({ servers }) => setSeen(servers)).catch(() => {});
    ask();
    const clock = setInterval(() => document.hidden || ask(), AGAIN_MS);
    return () => clearInterval(clock);
  }, []);
  const own = ledger.peers?.public_key ?? "–";
  const updates = ledger.list().filter((each) => each.parents.length);
  const answered = seen.filter((each) => each.transactions !== null);
  const asked = answered.find((each) => each.public_key === filters.get("through")) ?? answered[0];
  return html`<h1>Servers</h1>
    <dl>
      <dt>This server's key</dt><dd><code>${own}</code></dd>
      <dt>Ledger</dt><dd><code>${ledger.genesis.ledger}</code></dd>
      ${version && html`<dt>Release</dt><dd>${version.version}, commit ${version.commit}</dd>`}
      <dt>Published at it</dt><dd>${count(updates.filter((each) => each.server === own).length)} of the ${numberOf(updates.length, "update")} that this page holds</dd>
    </dl>
    ${seen.length > 1
      ? html`<div class="columns">
            <section><h2>Who is in touch with whom</h2><${Topology} seen=${seen} /></section>
            <section><h2>Who lacks what</h2><${Lacks} seen=${seen} /></section>
          </div>
          <h2>Peers</h2>
          <div class="tools"><${Choice} name="through" label="As seen by" value=${asked?.public_key ?? ""} options=${Object.fromEntries(answered.map((each) => [each.public_key, each.name]))} /></div>
          ${asked && html`<${Peers} asked=${asked} own=${own} />`}`
      : html`<p>It has no peers: this server keeps its ledger alone. <code>dag-acfl ledger join ${location.origin} --ledger ${ledger.genesis.ledger}</code> makes another one.</p>`}`;
}

/** @param {any} peer */
const state = (peer) => (peer.is_banned ? "banned" : !peer.is_neighbour ? "through others" : peer.is_reachable ? "in touch" : "does not answer");

/** What a peer did, as `fl_core.sync.effects.Incident` has it, in words. @type {Record<string, (times: string) => string>} */
const INCIDENTS = {
  invalid: (times) => `sent what no honest server sends, ${times}`,
  banned: () => "is not spoken to any more, for that: see this server's log",
  unserved: (times) => `did not send what it had listed, ${times}`,
  dropped: (times) => `sent updates that found no room here, or whose parents did not come, ${times}`,
  "rolled-back": () => "holds less than it did: its disk was put back to an earlier time",
  differs: (times) => `did not hold the same when both were compared, ${times}: what is missing is fetched by itself`,
};

/** What went wrong with a peer since the server's process started; its old errors as such, where it answers again. @param {any} peer */
const troubles = (peer) =>
  [
    ...peer.troubles.map((/** @type {string} */ each) => (peer.is_reachable ? `lately: ${each}` : each)),
    ...Object.entries(peer.incidents).map(([kind, times]) => (Object.hasOwn(INCIDENTS, kind) ? INCIDENTS[kind] : (/** @type {string} */ often) => `${kind}, ${often}`)(numberOf(/** @type {number} */ (times), "time"))),
  ].join("; ");

/** What to do about a server that does not answer; where it refuses, what it says has it. @param {Server} server */
const step = ({ name, url, problem }) =>
  /^\d{3}\b/.test(problem)
    ? `${name} refuses this server: ${problem}.`
    : `${name} does not answer: ${problem}. See whether it runs there (dag-acfl serve), and whether ${url} answers from this server's machine. Meanwhile the others go on; once it is back it fetches what it lacks by itself.`;

/** @param {{asked: Server, own: string}} properties */
function Peers({ asked, own }) {
  const rows = asked.peers;
  return html`<${Table} name="peers" caption=${`As ${asked.name} sees them${asked.public_key === own ? "" : ", asked by this server"}; bytes since its process started, of what ${asked.name} asked and sent by itself, not of what it was asked.`}
      head=${[{ name: "peer" }, { name: "address" }, { name: "state" }, { name: "last heard" }, { name: "updates it has", number: true }, { name: "received from it", number: true }, { name: "sent to it", number: true }, { name: "what went wrong", text: true }]}
      rows=${rows.map((each) => [
        html`<span title=${each.public_key}>${each.name}</span>`, each.url, html`<span class=${state(each) === "in touch" ? "good" : each.is_neighbour ? "bad" : ""}>${state(each)}</span>`,
        each.last_heard ? since(Date.parse(each.last_heard)) : "never", each.transactions === null ? "–" : count(Math.max(0, each.transactions - 1)), size(each.received_bytes), size(each.sent_bytes), troubles(each),
      ])}
      plain=${rows.map((each) => [each.name, each.url, each.public_key, state(each), each.last_heard ?? "", each.transactions === null ? "" : each.transactions - 1, each.received_bytes, each.sent_bytes, troubles(each)])} />`;
}

/** How many updates each server has fewer than each other one, by how many they say that they hold. @param {{seen: Server[]}} properties */
function Lacks({ seen }) {
  const held = (/** @type {Server} */ each) => each.transactions;
  const cells = seen.map((row) => [row.name, ...seen.map((column) => (row === column ? "" : held(row) === null || held(column) === null ? "?" : Math.max(0, Number(held(column)) - Number(held(row)))))]);
  const most = Math.max(...seen.map((each) => each.transactions ?? 0));
  const away = seen.filter((each) => each.transactions === null);
  return html`${away.map((each) => html`<p class="said">${step(each)}</p>`)}
    ${!away.length && html`<p class="said">${seen.every((each) => each.transactions === most) ? `All have ${numberOf(most - 1, "update")}.` : "Some are behind; they fetch what they lack by themselves."}</p>`}
    <${Table} name="lacks" caption="How many updates the server of a row has fewer than that of a column." head=${[{ name: "server" }, ...seen.map((each) => ({ name: each.name, number: true }))]}
      rows=${cells.map((row) => row.map((cell, at) => (at && cell ? html`<span class="bad">${cell === "?" ? cell : count(Number(cell))}</span>` : cell)))} plain=${cells} />`;
}

/** A ring of servers, with a line for each two that gossip. @param {{seen: Server[]}} properties */
function Topology({ seen }) {
  /** @type {Map<string, string>} */
  const names = new Map(seen.map((each) => [each.public_key, each.name]));
  for (const { peers } of seen) for (const peer of peers) if (!names.has(peer.public_key)) names.set(peer.public_key, peer.name);
  const keys = [...names.keys()];
  const at = (/** @type {string} */ key) => {
    const turn = (2 * Math.PI * keys.indexOf(key)) / keys.length - Math.PI / 2;
    return { x: SIDE / 2 + RADIUS * Math.cos(turn), y: SIDE / 2 + RADIUS * Math.sin(turn) };
  };
  /** @type {Map<string, {a: string, b: string, isUp: boolean}>} */
  const lines = new Map();
  for (const server of seen)
    for (const peer of server.peers.filter((each) => each.is_neighbour)) {
      const [a, b] = [server.public_key, peer.public_key].sort();
      const isUp = state(peer) === "in touch" && (lines.get(a + b)?.isUp ?? true);
      lines.set(a + b, { a, b, isUp });
    }
  const away = new Set(seen.filter((each) => each.transactions === null).map((each) => each.public_key));
  const said = [...lines.values()].map(({ a, b, isUp }) => `${names.get(a)} and ${names.get(b)} ${isUp ? "are in touch" : "are not in touch"}`).join("; ");
  return html`<svg class="topology" viewBox=${`0 0 ${SIDE} ${SIDE}`} role="img" aria-label=${said}>
    ${[...lines.values()].map(({ a, b, isUp }) => html`<line x1=${at(a).x} y1=${at(a).y} x2=${at(b).x} y2=${at(b).y} class=${isUp ? "up" : "down"} />`)}
    ${keys.map((key) => html`<g>
      <circle cx=${at(key).x} cy=${at(key).y} r="9" class=${away.has(key) ? "down" : "up"} />
      <text x=${at(key).x} y=${at(key).y + (at(key).y < SIDE / 2 ? -16 : 26)} text-anchor="middle">${(names.get(key) ?? "").slice(0, 24)}</text>
    </g>`)}
  </svg>`;
}
