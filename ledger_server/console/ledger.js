/**
 * What the page knows of a ledger: a part of its updates, its clients and clusters, kept up by the server's events.
 *
 * An update that is here never changes. At most `MOST` are held: who looks at another part has the farthest let go.
 */
import { follow, getJson, Refused, SILENT_MS } from "./api.js";
import { placesOf } from "./clustering.js";

/**
 * @typedef {object} Update
 * @property {number} arrival Its place in the server's order of arrival; genesis is 0.
 * @property {string} id
 * @property {string} author
 * @property {string} server Key of the server that it was published to.
 * @property {number[]} parents Their arrivals.
 * @property {number} depth
 * @property {number} at When it was received, in ms since 1970.
 * @property {number} examples
 * @property {number | null} step Norm of its step.
 * @property {Record<string, number>} metrics
 */

const PART = 500;
const WHOLE = 4000; // of a longer part, evenly spaced updates are asked for
const MOST = 20_000;
const AGAIN_MS = 3000;
const REDRAW_MS = 30; // what comes together is shown together; events come ten times a second at most
const LATELY_MS = 4000; // clients, clusters, peers and costs are asked again so long after something new at the earliest,
const REST = 20; // and so many times as long as their answers took

export class Ledger {
  constructor() {
    /** @type {Map<number, Update>} */
    this.updates = new Map();
    /** @type {Map<string, number>} */
    this.arrivals = new Map();
    /** @type {Map<number, number[]>} Of updates, the arrivals of those that name them as parents, as far as they are here. */
    this.children = new Map();
    /** @type {Map<string, number>} */
    this.clusterOf = new Map();
    /** Where the ledger comes from, as /v1/view/source says it. @type {any} */
    this.source = null;
    /** The server has another version of this page now. */
    this.isOldPage = false;
    /** @type {any} */
    this.genesis = null;
    /** @type {any} */
    this.clusters = null;
    /** @type {any} */
    this.peers = null;
    /** @type {any} */
    this.costs = null;
    /** @type {any[]} */
    this.alarms = [];
    /** @type {any} */
    this.quarantine = null;
    /** @type {any[]} */
    this.clients = [];
    this.length = 0;
    /** Time travel: only what arrived before this is shown; null: everything, and what comes. @type {number | null} */
    this.until = null;
    /** @type {"starting" | "live" | "away" | "token"} */
    this.state = "starting";
    /** @type {Error | null} */
    this.trouble = null;
    this.heardAt = Date.now();
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.redraw = 0;
    this.refresh = 0;
    this.rest = LATELY_MS;
    /** @type {AbortController | null} */
    this.stream = null;
    /** @type {Map<string, Promise<any>>} */
    this.asked = new Map();
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  changed() {
    this.redraw ||= window.setTimeout(() => {
      this.redraw = 0;
      for (const listener of this.listeners) listener();
    }, REDRAW_MS);
  }

  /** Ask for all that the views share, and follow the events. */
  async start() {
    this.stream?.abort();
    this.stream = new AbortController();
    const { signal } = this.stream;
    const again = (/** @type {Error} */ error) => {
      if (signal.aborted) return;
      this.fail(error);
      if (this.state !== "token") window.setTimeout(() => signal.aborted || void this.start(), AGAIN_MS);
    };
    try {
      await this.identify();
      if (this.source.ledger) {
        this.genesis = await getJson("/v1/genesis");
        await this.latest();
        await this.lately();
      } else this.connected();
    } catch (error) {
      again(/** @type {Error} */ (error));
      return;
    }
    if (signal.aborted || !this.source.ledger) return;
    let isFirst = true;
    void follow("/v1/view/events", {
      signal,
      onEvent: (kind, data) => kind === "updates" && this.heard(data),
      onHeard: () => void (this.heardAt = Date.now()),
      onLost: () => void this.forget(),
      onState: (state, why) => {
        if (state === "away") this.fail(/** @type {Error} */ (why));
        else if (isFirst) {
          isFirst = false;
          this.connected();
          void this.latest().catch(() => {});
        } else this.reconnected(signal).catch(again);
      },
    });
  }

  connected() {
    this.state = "live";
    this.trouble = null;
    this.heardAt = Date.now();
    this.changed();
  }

  /** The server is back: is it the same one, and what came meanwhile? @param {AbortSignal} signal */
  async reconnected(signal) {
    const { ledger } = this.source;
    await this.identify();
    if (signal.aborted) return;
    if (this.source.ledger !== ledger) return void this.start();
    this.connected();
    await this.latest();
    await this.lately();
  }

  /** What is served here? Of another ledger than before nothing is known yet. */
  async identify() {
    const source = await getJson("/v1/view/source").catch((error) => {
      if (this.source && error instanceof Refused && error.status === 404) return { ...this.source, page: "" };
      throw error;
    });
    if (this.source && this.source.ledger !== source.ledger) this.clear();
    this.isOldPage = this.source !== null && this.source.page !== source.page;
    this.source = { ...source, page: this.source?.page ?? source.page };
  }

  /** Nobody looks: others may have the stream. */
  leave() {
    this.stream?.abort();
    this.stream = null;
    this.state = "starting";
  }

  /** Somebody looks. */
  back() {
    if (!this.stream) return void this.start();
    this.check();
    if (this.state === "live" && this.genesis) void this.lately().catch((error) => this.fail(error));
  }

  /** A laptop that slept holds a stream that is dead without an error; its own timers slept, too. */
  check() {
    if (this.state !== "live" || !this.source.ledger || Date.now() - this.heardAt <= SILENT_MS) return;
    this.fail(new Error("nothing was heard for a while"));
    void this.start();
  }

  /** @param {Error} error */
  fail(error) {
    this.trouble = error;
    this.state = error instanceof Refused && [401, 403].includes(error.status) ? "token" : "away";
    this.changed();
  }

  /** Nothing is known of the ledger. */
  clear() {
    this.updates.clear();
    this.arrivals.clear();
    this.children.clear();
    this.clusterOf.clear();
    this.asked.clear();
    this.genesis = this.clusters = this.peers = this.costs = this.quarantine = null;
    this.alarms = [];
    this.clients = [];
    this.length = 0;
    this.until = null;
  }

  /** The journal was put back: begin anew. */
  async forget() {
    this.updates.clear();
    this.arrivals.clear();
    this.children.clear();
    this.length = 0;
    this.until = null;
    await this.latest().catch(() => {});
  }

  async latest() {
    const page = await getJson(`/v1/view/updates?first=0&end=1`);
    this.take(page);
    if (page.transactions > 1) await this.part(Math.max(1, page.transactions - PART), page.transactions);
  }

  /** What is asked again now and then. */
  async lately() {
    const began = performance.now();
    const { clusters, clients, peers, costs, alarms, quarantine } = await getJson("/v1/view/ledger");
    // A ledger of a hundred thousand clients is asked rarely, and pages not all at once: what answers them has others to answer.
    this.rest = Math.max(LATELY_MS, REST * (performance.now() - began)) * (0.75 + Math.random() / 2);
    this.clients = clients.items;
    this.peers = peers;
    this.costs = costs;
    this.alarms = alarms.items;
    this.quarantine = quarantine;
    if (clusters) this.takeClusters(clusters);
    this.changed();
  }

  /** Clusters as /v1/clusters says them, each with its place here and the one that the server means, by place. @param {any} said */
  takeClusters(said) {
    /** @type {string[][]} */
    const before = [];
    for (const { place, authors } of this.clusters?.clusters ?? []) before[place] = authors;
    const places = placesOf(Array.from(before, (authors) => authors ?? []), said.clusters.map((/** @type {any} */ each) => each.authors));
    const clusters = said.clusters.map((/** @type {any} */ each, /** @type {number} */ served) => ({ ...each, served, place: places[served] }));
    this.clusters = { ...said, clusters: clusters.sort((/** @type {any} */ a, /** @type {any} */ b) => a.place - b.place) };
    this.clusterOf = new Map(clusters.flatMap((/** @type {any} */ each) => each.authors.map((/** @type {string} */ author) => [author, each.place])));
  }

  /** @param {any} page Updates that have come. */
  heard(page) {
    this.heardAt = Date.now();
    this.take(page);
    this.refresh ||= window.setTimeout(() => {
      this.refresh = 0;
      if (document.hidden) return; // asked again by the next event
      void this.lately().catch((error) => this.fail(error));
    }, this.rest);
    this.changed();
  }

  /** @param {Update} update */
  add(update) {
    if (!this.updates.has(update.arrival))
      for (const parent of update.parents) {
        const children = this.children.get(parent);
        if (children) children.push(update.arrival);
        else if (parent >= 0) this.children.set(parent, [update.arrival]);
      }
    this.arrivals.set(update.id, update.arrival);
    this.updates.set(update.arrival, update);
    if (this.updates.size > MOST + PART) this.letGo(update.arrival);
  }

  /** @param {number} near Those farthest from here are let go. */
  letGo(near) {
    const far = [...this.updates.values()].sort((a, b) => Math.abs(b.arrival - near) - Math.abs(a.arrival - near));
    for (const update of far.slice(0, PART)) {
      this.updates.delete(update.arrival);
      this.arrivals.delete(update.id);
      for (const parent of update.parents) {
        const others = (this.children.get(parent) ?? []).filter((each) => each !== update.arrival);
        if (others.length) this.children.set(parent, others);
        else this.children.delete(parent);
      }
    }
  }

  /** @param {any} page As /v1/view/updates answers. @returns {Update[]} */
  take(page) {
    if (page.ledger !== this.source.ledger) {
      void this.start();
      throw new Error("another ledger is served here now");
    }
    const found = updatesOf(page);
    this.length = Math.max(this.length, page.transactions);
    if (page.every === 1) for (const update of found) this.add(update);
    this.changed();
    return found;
  }

  /**
   * Updates of a part of the journal; of a long one, evenly spaced ones.
   *
   * @param {number} first @param {number} end
   * @returns {Promise<Update[]>}
   */
  async part(first, end) {
    const from = Math.max(0, first);
    const step = end - from > WHOLE ? end - from : PART;
    const pieces = [];
    for (let start = from; start < end && (start === from || start < this.length); start += step) // there is nothing beyond
      pieces.push(this.piece(start, Math.min(start + step, end)));
    return (await Promise.all(pieces)).flat();
  }

  /** @param {number} first @param {number} end @returns {Promise<Update[]>} */
  piece(first, end) {
    const path = `/v1/view/updates?first=${first}&end=${end}&most=${PART}`;
    const asked = this.asked.get(path) ?? getJson(path).then((page) => this.take(page));
    this.asked.set(path, asked);
    void asked.catch(() => {}).finally(() => this.asked.delete(path));
    return asked;
  }

  /** The updates that are here, in order of arrival, up to where time travel goes. @returns {Update[]} */
  list() {
    const until = this.until ?? Infinity;
    return [...this.updates.values()].filter((each) => each.arrival < until).sort((a, b) => a.arrival - b.arrival);
  }

  /** Those of a part that are here, in order. @param {number} first @param {number} end @returns {Update[]} */
  between(first, end) {
    const found = [];
    for (let arrival = first; arrival < end; arrival += 1) {
      const update = this.updates.get(arrival);
      if (update) found.push(update);
    }
    return found;
  }

  /** Where the shown ledger ends. */
  get end() {
    return this.until ?? this.length;
  }

  /** @param {string} author */
  cluster(author) {
    return this.clusterOf.get(author) ?? -1;
  }

  /**
   * Updates that one descends from, or that descend from it, as far as they are here.
   *
   * @param {number} from @param {"past" | "future"} direction
   * @returns {Set<number>} Their arrivals, and its own.
   */
  lineage(from, direction) {
    const found = new Set([from]);
    for (const arrival of found) // which grows meanwhile
      for (const other of (direction === "past" ? this.updates.get(arrival)?.parents : this.children.get(arrival)) ?? [])
        if (this.updates.has(other)) found.add(other);
    return found;
  }
}

/** @param {any} page As /v1/view/updates answers. @returns {Update[]} */
function updatesOf(page) {
  const names = Object.keys(page.metrics);
  return page.arrivals.map((/** @type {number} */ arrival, /** @type {number} */ row) => ({
    arrival,
    id: page.ids[row],
    author: page.authors[page.author[row]],
    server: page.servers[page.server[row]],
    parents: page.parents[row],
    depth: page.depth[row],
    at: page.received_at_ms[row],
    examples: page.num_examples[row],
    step: page.step[row],
    // Without a prototype: a client may call a figure "constructor".
    metrics: Object.assign(
      Object.create(null),
      Object.fromEntries(names.filter((name) => page.metrics[name][row] !== null).map((name) => [name, page.metrics[name][row]])),
    ),
  }));
}
