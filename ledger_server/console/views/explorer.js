/** The DAG: each update a dot, its client a lane, and a line to each update that it was averaged from; many as a density. */
import { html, useEffect, useRef, useState } from "../vendor/htm-3.1.1/preact.js";
import { filter } from "../address.js";
import { getJson } from "../api.js";
import { Choice, Link, Updates, painting, penOf, shade } from "../parts.js";
import { authorName, brief, colour, count, number, numberOf, time } from "../words.js";
import { Counts, drawDensity, lanesOf } from "./density.js";
import { asked, Filters } from "./filters.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {import("../ledger.js").Update} Update */

const LEFT = 110; // pixels for the lanes' names
const TOP = 14;
const BOTTOM = 26;
const MOST_LINES = 20_000;
const SHOWN_AT_FIRST = 300;
const WHOLE = 4000; // of more, how many there are where is drawn
const COLUMN = 4; // pixels, of those
const REST_MS = 250; // between questions to the server,
const LIVE_REST_MS = 2000; // and while updates come, each of which makes another question of it
const LIVE_REST = 20; // or so many times as long as the answer took
const AXES = { order: "order of arrival", depth: "depth", time: "time" };
const LANES = { client: "client", cluster: "cluster", server: "server" };

/**
 * @typedef {object} Scene
 * @property {Update[]} updates
 * @property {{key: string, name: string, place: number}[]} lanes With the colour's place.
 * @property {Map<number, [number, number]>} at Of updates, pixels.
 * @property {number} height
 * @property {number} lot Pixels of a lane.
 */

/** @typedef {{updates: Update[], density: any, trouble: string}} Found */

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function Explorer({ ledger, filters }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const scene = useRef(/** @type {Scene | null} */ (null));
  const [over, setOver] = useState(/** @type {Update | null} */ (null));
  const [spot, setSpot] = useState([0, 0]);
  const drag = useRef(/** @type {{x: number, first: number, end: number, moved: boolean} | null} */ (null));

  const axis = filters.get("x") ?? "order";
  const lane = filters.get("lane") ?? "client";
  const isFollowing = !filters.get("end");
  const end = Math.min(isFollowing ? ledger.end : Number(filters.get("end")), ledger.end);
  const isThen = ledger.until !== null;
  const only = asked(ledger, filters, isThen);
  const isTipsThen = isThen && filters.get("tips") === "1"; // of which only the page knows, of what it holds
  const usual = only ? ledger.end : Math.min(SHOWN_AT_FIRST, Math.max(10, ledger.end));
  const span = Math.max(10, Number(filters.get("span") ?? usual));
  const first = Math.max(0, end - span);
  const chosen = filters.get("update") ? ledger.arrivals.get(/** @type {string} */ (filters.get("update"))) : undefined;
  const isHeld = !only && end - first <= WHOLE;
  const how = `&by=${lane === "client" ? "author" : lane}&over=${axis}`;
  const found = useFound(ledger, isHeld ? null : { part: `first=${first}&end=${end}${only}`, how, isMany: !only, live: isFollowing ? `${span}${only}${how}` : "" });
  const density = isHeld ? null : found.density;

  useEffect(() => {
    if (!isHeld) return;
    for (let part = first - (first % 1000); part < end; part += 1000) {
      const [from, to] = [Math.max(first, part), Math.min(part + 1000, end)];
      let missing = false;
      for (let arrival = from; arrival < to && !missing; arrival += 1) missing = !ledger.updates.has(arrival);
      if (missing) void ledger.part(part, part + 1000).catch(() => {});
    }
  }, [first, end, isHeld]);

  const shown = (isHeld ? ledger.between(first, end) : found.updates).filter(
    (each) => each.arrival < end && (!isTipsThen || !ledger.children.get(each.arrival)?.some((other) => other < ledger.end)),
  );
  const of = (/** @type {number} */ whole) => whole - Number(first === 0); // without genesis, which is no client's update
  const others = (/** @type {Set<number> | null} */ lineage) => [...(lineage ?? [])].filter((each) => each && each !== chosen).length;
  const lines = shown.reduce((sum, each) => sum + each.parents.length, 0);
  const past = chosen === undefined ? null : ledger.lineage(chosen, "past");
  const future = chosen === undefined ? null : ledger.lineage(chosen, "future");

  useEffect(() => {
    const held = canvas.current;
    if (!held) return undefined;
    return painting(/** @type {Element} */ (held.parentElement), () => {
      scene.current = density
        ? sceneOf(lanesOf(density, ledger, lane))
        : arrange(ledger, shown, held.clientWidth, { axis, lane, first, end });
      draw(held, ledger, scene.current, { chosen, past, future, over: over?.arrival, density, axis, lines });
    });
  });

  /** @param {number} at @param {number} width */
  const show = (at, width) => {
    const wide = Math.round(Math.min(Math.max(width, 10), Math.max(10, ledger.end)));
    const last = Math.round(Math.min(Math.max(at, Math.min(wide, ledger.end)), ledger.end));
    filter({ span: String(wide), end: last >= ledger.end && isFollowing ? "" : String(last) });
  };
  const zoom = (/** @type {number} */ factor, share = 1) => {
    const wide = span * factor;
    show(first + span * share + wide * (1 - share), wide);
  };
  const follow = () => filter({ end: isFollowing ? String(end) : "" });
  const choose = (/** @type {Update | null} */ update) => filter({ update: update?.id ?? "" });

  const nearest = (/** @type {any} */ event) => {
    const box = event.target.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = /** @type {Update | null} */ (null);
    let distance = 12;
    for (const update of scene.current?.updates ?? []) {
      const [dx, dy] = /** @type {[number, number]} */ (scene.current?.at.get(update.arrival));
      const far = Math.hypot(dx - x, dy - y);
      if (far < distance) [best, distance] = [update, far];
    }
    return { best, x, y, width: box.width };
  };
  /** The client whose name this is. @param {any} event */
  const named = (event) => {
    const box = event.target.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - TOP) / (scene.current?.lot ?? 1));
    return lane === "client" && event.clientX - box.left < LEFT - 8 ? scene.current?.lanes[row]?.key : undefined;
  };
  /** Of a density, half of what is shown around a place. @param {any} event */
  const closer = (event) => {
    const box = event.target.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT - 16)));
    show(first + share * span + span / 8, span / 4);
  };
  const moved = (/** @type {any} */ event) => {
    if (drag.current) {
      const box = event.target.getBoundingClientRect();
      const by = Math.round(((drag.current.x - event.clientX) / (box.width - LEFT)) * span);
      if (by) {
        drag.current.moved = true;
        filter({ end: String(Math.min(Math.max(drag.current.end + by, span), ledger.end)) });
      }
      return;
    }
    const { best, x, y } = nearest(event);
    setOver(best);
    setSpot([x, y]);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    const by = Math.max(1, Math.round(span / 10));
    const order = scene.current?.updates ?? [];
    const at = order.findIndex((each) => each.arrival === chosen);
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => filter({ end: String(Math.max(end - by, Math.min(span, ledger.end))) }),
      ArrowRight: () => filter({ end: end + by >= ledger.end ? "" : String(end + by) }),
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      f: follow,
      n: () => choose(order[Math.min(at + 1, order.length - 1)] ?? null),
      p: () => choose(order[at < 0 ? order.length - 1 : Math.max(at - 1, 0)] ?? null),
      Enter: () => void (chosen !== undefined && (location.hash = `#/updates/${filters.get("update")}`)),
      Escape: () => choose(null),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  };
  return html`<h1>Updates</h1>
    <div class="tools">
      <${Choice} name="x" label="Across" value=${axis} options=${AXES} />
      <${Choice} name="lane" label="A lane for each" value=${lane} options=${LANES} />
      <span role="group" aria-label="Part">
        <button type="button" onClick=${() => zoom(0.5)} aria-label="Fewer updates">+</button>
        <button type="button" onClick=${() => zoom(2)} aria-label="More updates">−</button>
        <button type="button" onClick=${() => show(ledger.end, ledger.end)}>All</button>
      </span>
      <button type="button" aria-pressed=${isFollowing} onClick=${follow}>${isFollowing ? "Following" : "Paused"}</button>
    </div>
    <${Filters} ledger=${ledger} filters=${filters} />
    <div class="drawing">
      <canvas ref=${canvas} tabindex="0" role="application" aria-label="The updates as a graph. Left and right move, plus and minus zoom, n and p go through the updates, Enter opens one; the table below has the same."
        onPointerMove=${moved} onPointerLeave=${() => setOver(null)} onKeyDown=${key}
        onPointerDown=${(/** @type {PointerEvent} */ event) => {
          drag.current = { x: event.clientX, first, end, moved: false };
          /** @type {Element} */ (event.target).setPointerCapture(event.pointerId);
        }}
        onPointerUp=${(/** @type {any} */ event) => {
          const wasDragged = drag.current?.moved;
          drag.current = null;
          if (wasDragged) return;
          const lane = named(event);
          if (lane) location.hash = `#/clients/${encodeURIComponent(lane)}`;
          else if (!density) choose(nearest(event).best);
          else if (axis === "order") closer(event);
        }}
        onDblClick=${(/** @type {any} */ event) => {
          const { best } = nearest(event);
          if (best) location.hash = `#/updates/${best.id}`;
        }}
        onWheel=${(/** @type {any} */ event) => {
          event.preventDefault();
          const box = event.target.getBoundingClientRect();
          zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT))));
        }}></canvas>
      ${over && html`<${Tip} ledger=${ledger} update=${over} spot=${spot} />`}
    </div>
    ${found.trouble && !isHeld && html`<p class="bad" role="alert">${found.trouble}</p>`}
    <p class="quiet">
      ${density
        ? html`${numberOf(only ? density.found : of(density.found), "update")}, in ${count(density.columns)} columns: the darker, the more. ${axis === "order" ? "Click where there is something to see, or zoom in, until updates are dots." : "Zoom in until they are dots."}`
        : html`${numberOf(shown.filter((each) => each.parents.length).length, "update")}${only ? ` of ${count(of(end - first))}` : ""}.
            ${lines > MOST_LINES ? " More lines than can be told apart: choose an update to see its own." : ""}
            ${chosen !== undefined
              ? html` Chosen: <${Link} id=${filters.get("update")} />, which descends from ${count(others(past))} of them and went into ${count(others(future))}; its page says from which it learnt directly, and why.`
              : " A line leads from each update to those that its training began from. Click one to see what it descends from, and who built on it."}`}
    </p>
    <h2>The same as a table</h2>
    ${density
      ? html`<${Counts} lanes=${lanesOf(density, ledger, lane)} density=${density} by=${lane} />`
      : html`<${Updates} ledger=${ledger} updates=${shown.slice().reverse()} name="updates" caption="Newest first." marked=${(/** @type {number} */ row) => shown[shown.length - 1 - row]?.arrival === chosen} />`}`;
}

/**
 * @typedef {object} Question
 * @property {string} part Which updates.
 * @property {string} how What a density is counted by.
 * @property {boolean} isMany Whether they are too many to be dots in any case.
 * @property {string} live While updates come: what stays the same as they do.
 */

/**
 * What the server finds in all of its ledger. One question at a time; while updates come, with a rest after each.
 *
 * @param {Ledger} ledger @param {Question | null} question
 * @returns {Found}
 */
function useFound(ledger, question) {
  const [found, setFound] = useState(/** @type {Found} */ ({ updates: [], density: null, trouble: "" }));
  const wanted = useRef(/** @type {Question | null} */ (null));
  const isAsking = useRef(false);
  wanted.current = question;
  const path = question ? question.part + question.how : "";
  const ask = async () => {
    if (isAsking.current) return;
    isAsking.current = true;
    for (let had = ""; wanted.current && wanted.current.part + wanted.current.how !== had; ) {
      const asked = wanted.current;
      const began = performance.now();
      had = asked.part + asked.how;
      try {
        const answer = await askFor(ledger, asked);
        if (wanted.current) setFound(answer);
      } catch (error) {
        const { message, status } = /** @type {any} */ (error);
        if (status === 503) had = ""; // it reads its journal, for the first question of this kind
        setFound({ updates: [], density: null, trouble: status === 503 ? "The server is reading its journal …" : message });
      }
      const rest = Math.max(LIVE_REST_MS, LIVE_REST * (performance.now() - began));
      do await new Promise((resolve) => setTimeout(resolve, REST_MS));
      while (asked.live && wanted.current?.live === asked.live && performance.now() - began < rest);
    }
    isAsking.current = false;
  };
  useEffect(() => void ask(), [path]);
  useEffect(() => () => void (wanted.current = null), []);
  return found;
}

/** @param {Ledger} ledger @param {Question} question @returns {Promise<Found>} */
async function askFor(ledger, { part, how, isMany }) {
  if (!isMany) {
    const page = await getJson(`/v1/view/updates?${part}`);
    if (page.every === 1) return { updates: ledger.take(page), density: null, trouble: "" };
  }
  const columns = Math.min(1000, Math.max(60, Math.round((innerWidth - LEFT) / COLUMN)));
  return { updates: [], density: await getJson(`/v1/view/density?${part}${how}&columns=${columns}`), trouble: "" };
}

/** @param {{ledger: Ledger, update: Update, spot: number[]}} properties */
function Tip({ ledger, update, spot }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const held = box.current;
    if (!held) return;
    const room = /** @type {HTMLElement} */ (held.parentElement).clientWidth;
    held.style.left = `${Math.max(4, Math.min(spot[0] + 14, room - held.clientWidth - 4))}px`;
    const below = spot[1] + 14;
    const fits = below + held.offsetHeight + 4 <= /** @type {HTMLElement} */ (held.parentElement).clientHeight;
    held.style.top = `${fits ? below : Math.max(4, spot[1] - 14 - held.offsetHeight)}px`;
  });
  return html`<div class="tip" ref=${box}>
    <b class="mono">${brief(update.id)}</b> by <span class="mono">${authorName(update.author)}</span><br />
    ${update.parents.length ? `learnt from ${numberOf(update.parents.length, "model")}${update.parents.some((each) => ledger.updates.get(each)?.author === update.author) ? ", its own before among them" : ""}` : "the first model"}, ${time(update.at)}<br />
    ${[
      ...(update.metrics.accuracy === undefined ? [] : [`accuracy ${number(update.metrics.accuracy)}`]),
      ...(ledger.cluster(update.author) < 0 ? [] : [`cluster ${ledger.cluster(update.author) + 1}`]),
    ].join(", ")}
  </div>`;
}

/**
 * Where everything is drawn: nothing moves because something comes, but along the axis.
 *
 * @param {Ledger} ledger @param {Update[]} updates @param {number} width
 * @param {{axis: string, lane: string, first: number, end: number}} how
 * @returns {Scene}
 */
function arrange(ledger, updates, width, { axis, lane, first, end }) {
  const keyOf = (/** @type {Update} */ each) =>
    lane === "server" ? each.server : lane === "cluster" ? `cluster ${ledger.cluster(each.author) + 1}` : each.author;
  /** @type {Map<string, {key: string, name: string, place: number}>} */
  const lanes = new Map();
  for (const update of updates) {
    const key = keyOf(update);
    if (lanes.has(key)) continue;
    const place = lane === "server" ? lanes.size : update.parents.length ? ledger.cluster(update.author) : -1;
    lanes.set(key, { key, name: lane === "client" ? authorName(key) : lane === "server" ? brief(key) : key, place });
  }
  const ordered = [...lanes.values()].sort((a, b) => a.place - b.place || (a.key < b.key ? -1 : 1));
  const lot = lotOf(ordered, lane);
  const yOf = new Map(ordered.map((each, place) => [each.key, TOP + lot * (place + 0.5)]));
  const xs = updates.map((each) => (axis === "depth" ? each.depth : axis === "time" ? each.at : each.arrival));
  const [low, high] = axis === "order" ? [first, end - 1] : [Math.min(...xs), Math.max(...xs)];
  const room = width - LEFT - 16;
  /** @type {Map<number, [number, number]>} */
  const at = new Map();
  updates.forEach((update, place) => {
    const jitter = lane === "client" ? 0 : ((update.arrival * 0.618) % 1 - 0.5) * lot * 0.8;
    at.set(update.arrival, [LEFT + (room * (xs[place] - low)) / Math.max(1, high - low), /** @type {number} */ (yOf.get(keyOf(update))) + jitter]);
  });
  return { updates, lanes: ordered, at, height: heightOf(ordered, lot), lot };
}

/** Pixels of a lane. @param {any[]} lanes @param {string} lane */
const lotOf = (lanes, lane) => Math.max(5, Math.min(lane === "client" ? 22 : 90, 560 / Math.max(1, lanes.length)));

/** @param {any[]} lanes @param {number} lot */
const heightOf = (lanes, lot) => Math.max(120, TOP + lot * lanes.length + BOTTOM);

/** @param {import("./density.js").Lane[]} lanes @returns {Scene} */
const sceneOf = (lanes) => {
  const lot = lotOf(lanes, "client");
  return { updates: [], lanes, at: new Map(), height: heightOf(lanes, lot), lot };
};

/**
 * @param {HTMLCanvasElement} canvas @param {Ledger} ledger @param {Scene} scene
 * @param {{chosen?: number, past: Set<number> | null, future: Set<number> | null, over?: number, density: any, axis: string, lines: number}} marks
 */
function draw(canvas, ledger, scene, { chosen, past, future, over, density, axis, lines }) {
  const width = canvas.clientWidth;
  const pen = penOf(canvas, width, scene.height);
  const ink = shade("--quiet");
  pen.font = "11px system-ui, sans-serif";
  const { lot } = scene;
  scene.lanes.forEach((lane, place) => {
    const y = TOP + lot * (place + 0.5);
    if (lot >= 11 || place % Math.ceil(11 / lot) === 0) {
      pen.fillStyle = colour(lane.place);
      pen.fillText(lane.name, 8, y, LEFT - 16);
    }
  });
  if (density) {
    const lanes = /** @type {import("./density.js").Lane[]} */ (scene.lanes);
    drawDensity(pen, lanes, density.columns, { left: LEFT, top: TOP, width: width - LEFT - 16, lot });
    const ends = [density.low, density.high];
    pen.fillStyle = ink;
    label(pen, width, scene.height, axis === "time" ? ends.map(time) : ends.map((each) => (axis === "depth" ? `depth ${each}` : `#${each}`)));
    return;
  }
  const isOn = (/** @type {number} */ each) => chosen === undefined || past?.has(each) || future?.has(each);
  if (lines <= MOST_LINES)
    for (const update of scene.updates) {
      const [x, y] = /** @type {[number, number]} */ (scene.at.get(update.arrival));
      for (const parent of update.parents) {
        const end = scene.at.get(parent);
        if (!end) continue;
        const isMarked =
          chosen !== undefined &&
          ((past?.has(update.arrival) && past.has(parent)) || (future?.has(update.arrival) && future.has(parent)));
        if (chosen !== undefined && !isMarked) continue;
        pen.strokeStyle = isMarked ? (past?.has(parent) && past.has(update.arrival) ? colour(1) : colour(0)) : ink;
        pen.globalAlpha = isMarked ? 0.7 : lines > 3000 ? 0.12 : 0.3;
        pen.beginPath();
        pen.moveTo(x, y);
        pen.bezierCurveTo(x - (x - end[0]) / 2, y, end[0] + (x - end[0]) / 2, end[1], end[0], end[1]);
        pen.stroke();
      }
    }
  const radius = Math.max(2, Math.min(5, lot / 3, (width / Math.max(1, scene.updates.length)) * 2));
  for (const update of scene.updates) {
    const [x, y] = /** @type {[number, number]} */ (scene.at.get(update.arrival));
    pen.globalAlpha = isOn(update.arrival) ? 1 : 0.15;
    pen.fillStyle = update.parents.length ? colour(ledger.cluster(update.author)) : ink;
    pen.beginPath();
    pen.arc(x, y, update.arrival === chosen || update.arrival === over ? radius + 3 : radius, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
  const marked = chosen === undefined ? undefined : scene.at.get(chosen);
  if (marked) {
    pen.strokeStyle = shade("--ink");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(marked[0], marked[1], radius + 5, 0, 7);
    pen.stroke();
    pen.lineWidth = 1;
  }
  const ends = [scene.updates[0], scene.updates.at(-1)].filter((each) => each !== undefined);
  pen.fillStyle = ink;
  label(pen, width, scene.height, ends.map((each) => `#${each.arrival}, ${time(each.at)}`));
}

/** What stands at both ends of the axis; where there is no room, up to the first comma, or at the right alone. @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height @param {string[]} ends */
function label(pen, width, height, ends) {
  const room = width - LEFT - 8;
  const fits = (/** @type {string[]} */ words) => words.reduce((sum, each) => sum + pen.measureText(each).width + 12, 0) < room;
  const brief = ends.map((each) => each.split(", ")[0]);
  const [left, right] = fits(ends) ? ends : fits(brief) ? brief : ["", brief[1]];
  pen.fillText(left ?? "", LEFT, height - 12);
  pen.textAlign = "right";
  pen.fillText(right ?? "", width - 8, height - 12);
  pen.textAlign = "left";
}
