/**
 * Clusters as they were over time: in each part of the updates that the page holds, who learnt from whom, the groups
 * that Louvain's method (Blondel et al., 2008) finds in that, and which of today's clusters each group is.
 */

/** @typedef {import("./ledger.js").Ledger} Ledger */
/** @typedef {import("./ledger.js").Update} Update */
/** @typedef {{first: number, last: number, place: number}} Stay */
/** @typedef {Map<string, Map<string, number>>} Counts How often each client's updates name another client's. */

/**
 * @typedef {object} Period
 * @property {number} first Arrival of its first update.
 * @property {number} last Of its last.
 * @property {number} groups Of at least two clients.
 * @property {number} modularity
 * @property {number} pure Of the models that were averaged, the share that came from the client's own cluster of today.
 * @property {Map<string, number>} places Of each client, today's cluster that its group was for the most part; -1: none.
 */

const PERIODS = 24;

/**
 * Each cluster's place, and so its number and colour: that of the one before it which has most of its members in it now,
 * or the first that is free. The server names the largest first, which changes as they grow.
 *
 * @param {string[][]} before By place; empty where there is none. @param {string[][]} now
 * @returns {number[]}
 */
export function placesOf(before, now) {
  const held = new Map(before.flatMap((authors, place) => authors.map((author) => [author, place])));
  const places = now.map((authors) => {
    /** @type {Map<number, number>} */
    const from = new Map();
    for (const author of authors) {
      const place = held.get(author);
      if (place !== undefined) from.set(place, (from.get(place) ?? 0) + 1);
    }
    const kept = [...from].filter(([place, members]) => 2 * members > before[place].length);
    return kept.sort((a, b) => b[1] - a[1])[0]?.[0] ?? -1;
  });
  const taken = new Set(places);
  let free = 0;
  return places.map((place) => {
    if (place >= 0) return place;
    while (taken.has(free)) free += 1;
    return free++;
  });
}

/** How often each client's updates name another client's. @param {Ledger} ledger @param {Update[]} updates @returns {Counts} */
export function approvals(ledger, updates) {
  /** @type {Counts} */
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

/** @type {WeakMap<Ledger, Map<string, Period>>} Those that were computed, by what they are of. */
const known = new WeakMap();

/** The shown updates in parts of equally many, oldest first. @param {Ledger} ledger @param {Update[]} updates @returns {Period[]} */
export function periods(ledger, updates) {
  const before = known.get(ledger) ?? new Map();
  const now = new Map();
  // So many that clients have published twice, and a power of two, counted from genesis: only the last part changes.
  const clients = new Set(updates.filter((each) => each.arrival).map((each) => each.author)).size;
  const lot = 2 ** Math.ceil(Math.log2(Math.max(8, updates.length / PERIODS, 2 * clients)));
  for (let at = 0; at < updates.length; ) {
    const end = (Math.floor(updates[at].arrival / lot) + 1) * lot;
    let stop = at;
    while (stop < updates.length && updates[stop].arrival < end) stop += 1;
    const part = updates.slice(at, stop);
    // Of what is older, more may have come: then more parents are known.
    at = stop;
    if (part.length < lot / 2) continue; // too few to say anything
    const name = `${updates[0].arrival} ${part[0].arrival} ${part.length} ${ledger.clusters?.transactions}`;
    const found = before.get(name) ?? period(ledger, part);
    now.set(name, found);
  }
  known.set(ledger, now);
  return [...now.values()].filter((each) => each.places.size > 1);
}

/** @param {Ledger} ledger @param {Update[]} updates @returns {Period} */
function period(ledger, updates) {
  const counts = approvals(ledger, updates);
  const groups = communities(counts);
  /** @type {Map<string, number>} */
  const places = new Map();
  for (const group of groups) {
    /** @type {Map<number, number>} */
    const today = new Map();
    for (const author of group) today.set(ledger.cluster(author), (today.get(ledger.cluster(author)) ?? 0) + 1);
    const [[place]] = [...today].sort((a, b) => b[1] - a[1] || b[0] - a[0]);
    for (const author of group) places.set(author, group.length > 1 ? place : -1);
  }
  let [inside, all] = [0, 0];
  for (const [author, row] of counts)
    for (const [other, times] of row) {
      all += times;
      inside += times * Number(ledger.cluster(author) === ledger.cluster(other));
    }
  return {
    first: updates[0].arrival,
    last: /** @type {Update} */ (updates.at(-1)).arrival,
    groups: groups.filter((each) => each.length > 1).length,
    modularity: modularity(counts, groups),
    pure: all ? inside / all : NaN,
    places,
  };
}

/**
 * Louvain's method on the undirected graph of approvals; nodes in the order of their names, so the same every time.
 *
 * @param {Counts} counts
 * @returns {string[][]} Each group ascending, the largest first; a client that nobody is joined to is a group.
 */
export function communities(counts) {
  const names = [...new Set([...counts].flatMap(([author, row]) => [author, ...row.keys()]))].sort();
  const places = new Map(names.map((name, place) => [name, place]));
  /** @type {Map<number, number>[]} */
  let graph = names.map(() => new Map());
  const join = (/** @type {Map<number, number>[]} */ to, /** @type {number} */ a, /** @type {number} */ b, /** @type {number} */ weight) =>
    to[a].set(b, (to[a].get(b) ?? 0) + weight);
  for (const [author, row] of counts)
    for (const [other, times] of row) {
      const [a, b] = [/** @type {number} */ (places.get(author)), /** @type {number} */ (places.get(other))];
      join(graph, a, b, times);
      join(graph, b, a, times);
    }
  let groups = names.map((name) => [name]);
  for (;;) {
    const found = moved(graph);
    const numbers = new Map([...new Set(found)].map((each, place) => [each, place]));
    if (numbers.size === graph.length) break;
    const number = (/** @type {number} */ node) => /** @type {number} */ (numbers.get(found[node]));
    /** @type {Map<number, number>[]} */
    const next = [...numbers].map(() => new Map());
    graph.forEach((row, node) => row.forEach((weight, other) => join(next, number(node), number(other), weight)));
    const joined = /** @type {string[][]} */ ([...numbers].map(() => []));
    groups.forEach((group, node) => joined[number(node)].push(...group));
    [graph, groups] = [next, joined];
  }
  return groups.map((group) => group.sort()).sort((a, b) => b.length - a.length || (a[0] < b[0] ? -1 : 1));
}

/** Move each node to the neighbours' group where modularity gains most, until none gains. @param {Map<number, number>[]} graph */
function moved(graph) {
  const degrees = graph.map((row) => [...row.values()].reduce((sum, weight) => sum + weight, 0));
  const twice = degrees.reduce((sum, each) => sum + each, 0);
  const group = graph.map((_, node) => node);
  const total = degrees.slice();
  for (let hasMoved = twice > 0; hasMoved; ) {
    hasMoved = false;
    graph.forEach((row, node) => {
      /** @type {Map<number, number>} */
      const into = new Map([[group[node], 0]]);
      row.forEach((weight, other) => other !== node && into.set(group[other], (into.get(group[other]) ?? 0) + weight));
      total[group[node]] -= degrees[node];
      const gain = (/** @type {number} */ to) => /** @type {number} */ (into.get(to)) - (degrees[node] * total[to]) / twice;
      let best = group[node];
      for (const to of into.keys()) if (gain(to) > gain(best) + 1e-9) best = to;
      total[best] += degrees[node];
      hasMoved ||= best !== group[node];
      group[node] = best;
    });
  }
  return group;
}

/** Of a partition, as DAG-ACFL's Eq. 6 has it. @param {Counts} counts @param {string[][]} groups */
export function modularity(counts, groups) {
  const numbers = new Map(groups.flatMap((group, number) => group.map((author) => [author, number])));
  const [inside, degrees] = [groups.map(() => 0), groups.map(() => 0)];
  let twice = 0;
  for (const [author, row] of counts)
    for (const [other, times] of row) {
      const [a, b] = [/** @type {number} */ (numbers.get(author)), /** @type {number} */ (numbers.get(other))];
      degrees[a] += times;
      degrees[b] += times;
      inside[a] += 2 * times * Number(a === b);
      twice += 2 * times;
    }
  return twice ? inside.reduce((sum, within, number) => sum + within / twice - (degrees[number] / twice) ** 2, 0) : 0;
}

/**
 * A client's way: in which of today's clusters' company it was, from when to when.
 *
 * @param {Period[]} over @param {string} author
 * @returns {Stay[]}
 */
export function way(over, author) {
  /** @type {Stay[]} */
  const found = [];
  for (const { first, last, places } of over) {
    const place = places.get(author);
    if (place === undefined) continue;
    const before = found.at(-1);
    if (before?.place === place) before.last = last;
    else found.push({ first, last, place });
  }
  return found;
}
