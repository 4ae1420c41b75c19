/** Take part: this browser trains the ledger's model on digits and publishes it, as any other client does. */
import { html, useEffect, useRef, useState } from "../vendor/htm-3.1.1/preact.js";
import { filter } from "../address.js";
import { CLASSES, TEST, trainingDigits } from "../digits.js";
import { digitOf, paint, turned } from "../drawing.js";
import { Author, Empty, Link, Table, shade } from "../parts.js";
import { TakingPart, layersOf } from "../taking_part.js";
import { count, number, numberOf, time } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */
/** @typedef {import("../drawing.js").Stroke} Stroke */

const LABELS = Array.from({ length: CLASSES }, (_, label) => label);
const CAMERAS = { 0: "upright", 90: "turned by 90°", 180: "turned by 180°", 270: "turned by 270°" };

/** It goes on while other views are shown. @type {TakingPart | null} */
let part = null;

/** @param {Ledger} ledger @param {number[]} layers */
function partOf(ledger, layers) {
  if (part?.ledger !== ledger.genesis.ledger) part = new TakingPart(ledger.genesis.ledger, layers, () => ledger.changed());
  return /** @type {TakingPart} */ (part);
}

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function TakePart({ ledger, filters }) {
  const { layout } = ledger.genesis.document;
  const layers = layersOf(layout);
  if (!layers) return html`<${OtherModel} layout=${layout} />`;
  return html`<${Digits} ledger=${ledger} taking=${partOf(ledger, layers)} layers=${layers} asked=${filters.get("camera")} />`;
}

/** @param {{layout: any[]}} properties */
const OtherModel = ({ layout }) => html`<h1>Take part</h1>
  <${Empty} title="This ledger's model does not read digits, so this page cannot train it.">
    <p>It has ${layout.map((each) => `${each.name} ${each.shape.join("×")}`).slice(0, 6).join(", ")}${layout.length > 6 ? ` and ${count(layout.length - 6)} more` : ""}; this page trains
      perceptrons from 64 pixels to 10 classes (fc1.weight, fc1.bias, fc2.weight, …).</p>
    <p><code>dag-acfl demo --keep-serving</code> runs a ledger of such a model, with clients to learn from;</p>
    <p><code>dag-acfl client init my_client.py</code> and <code>dag-acfl ledger init --name pilot --client my_client.py</code> make one of your own. For another model, write a client: <code>docs/javascript.md</code>.</p>
  <//>`;

/** @param {{ledger: Ledger, taking: TakingPart, layers: number[], asked: string | null}} properties */
function Digits({ ledger, taking, layers, asked }) {
  const { kept, steps, doing } = taking;
  useEffect(() => {
    if (asked && asked in CAMERAS && Number(asked) !== kept.degrees) taking.turn(Number(asked));
  }, [asked]);
  const values = layers.slice(1).reduce((sum, units, at) => sum + units * (layers[at] + 1), 0);
  const last = steps.at(-1)?.report;
  const examples = trainingDigits(kept.seed).length + kept.drawn.length;
  return html`<h1>Take part</h1>
    <p class="said">This page is a client: it takes the average of the models that resemble its own, trains it on digits in this browser, and publishes.
      The digits stay here. What is sent is the trained model (${count(values)} values) and figures of it, under a key that this browser keeps (IndexedDB, ${taking.database}) and nobody else has.</p>
    <div class="tools">
      <button type="button" disabled=${doing} onClick=${() => void taking.train(false)}>Train and publish once</button>
      <button type="button" aria-pressed=${taking.isGoingOn} onClick=${() => void taking.train(!taking.isGoingOn)}>${taking.isGoingOn ? "Stop" : "Go on by itself"}</button>
      <span role="status" class="quiet">${doing ? `${doing} …` : kept.hasKey ? "waiting for you" : "not a client yet"}</span>
    </div>
    ${taking.problem && html`<p class="bad" role="alert">${taking.problem}</p>`}
    <ul class="tiles">
      <li class="tile"><b>${number(last?.before?.accuracy)}</b>of ${TEST.length} digits that nobody trains on were read by the average that came back</li>
      <li class="tile"><b>${number(last?.after?.accuracy)}</b>of them after training here</li>
      <li class="tile"><b>${last ? (last.numChosen ?? "–") : "–"}</b>models of others in the average${last?.numCandidates === undefined ? "" : `, of ${last.numCandidates} that were compared`}</li>
      <li class="tile"><b>${taking.read.of ? `${taking.read.right} of ${taking.read.of}` : "–"}</b>of your drawings were read rightly before they were trained on</li>
    </ul>
    ${last && (last.numChosen ?? 0) < 2 && html`<p class="quiet">Few of the others' models resemble yours yet, if any: it has learnt little. Train again, or let it go on by itself; within some updates it finds those like it.</p>`}
    <div class="columns">
      <${Draw} taking=${taking} />
      <section>
        <h2>What it trains on: ${numberOf(examples, "digit")}</h2>
        <div class="tools">
          <label>Your camera hangs
            <select value=${kept.degrees} disabled=${doing} onChange=${(/** @type {any} */ event) => filter({ camera: event.target.value })}>
              ${Object.entries(CAMERAS).map(([degrees, words]) => html`<option value=${degrees} selected=${Number(degrees) === kept.degrees}>${words}</option>`)}
            </select></label>
        </div>
        <p class="quiet">In the demo cameras hang four ways, and nobody is told which: watch with whose models yours are averaged.</p>
        <${Picture} digits=${trainingDigits(kept.seed).map((each) => turned(each.pixels, kept.degrees))} columns=${13} words="25 digits of a data set, as your camera sees them" />
        ${kept.drawn.length > 0 &&
        html`<p>You drew ${kept.drawn.length}; a click takes one out:</p>
          <div class="tools">
            ${taking.digits.slice(-kept.drawn.length).map((each, place) => html`<button type="button" key=${`${place} ${kept.drawn[place]}`} aria-label=${`Take out this ${each.label}`} onClick=${() => taking.drop(place)}>
              <${Picture} digits=${[turned(each.pixels, kept.degrees)]} columns=${1} words="" /> ${each.label}</button>`)}
          </div>`}
        <p class="quiet">Digits: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, CC BY 4.0.</p>
      </section>
    </div>
    <h2>Your updates</h2>
    ${taking.author && html`<p>You are <${Author} ledger=${ledger} author=${taking.author} />: <a href=${`#/updates?author=${encodeURIComponent(taking.author)}`}>your updates in the graph</a>.</p>`}
    ${steps.length
      ? html`<${Table} name="my-updates" caption="Those of this visit, newest first. Why these models were taken stands on each update's page." size=${10}
          head=${[{ name: "update" }, { name: "published" }, { name: "training began from" }, { name: "models of others", number: true }, { name: "accuracy, of the average", number: true }, { name: "after training", number: true }]}
          rows=${steps.toReversed().map(({ at, report }) => [html`<${Link} id=${report.transaction} />`, time(at), began(report), report.numChosen ?? "–", number(report.before?.accuracy), number(report.after?.accuracy)])}
          plain=${steps.toReversed().map(({ at, report }) => [report.transaction, new Date(at).toISOString(), began(report), report.numChosen ?? "", report.before?.accuracy ?? "", report.after?.accuracy ?? ""])} />`
      : html`<p class="quiet">None in this visit.</p>`}
    ${kept.hasKey && html`<${Leave} taking=${taking} />`}`;
}

/** @param {import("../taking_part.js").StepReport} report */
const began = ({ resumed, source }) => (resumed ? "the publication of an earlier visit, ended now" : source === "own" ? "your own model: none of the others resembled it" : "the average that came back");

/** @param {{taking: TakingPart}} properties */
function Leave({ taking }) {
  const [isAsked, setAsked] = useState(false);
  if (!isAsked) return html`<div class="tools"><button type="button" disabled=${taking.doing} onClick=${() => setAsked(true)}>Leave this ledger …</button></div>`;
  return html`<div class="empty" role="alertdialog" aria-label="Leave">
    <p>This deletes the key, the models and your drawings from this browser. What you have published stays in the ledger; nobody can publish as this client any more. If you take part again, you are another client.</p>
    <div class="tools">
      <button type="button" disabled=${taking.doing} onClick=${() => { setAsked(false); void taking.leave(); }}>Delete them</button>
      <button type="button" onClick=${() => setAsked(false)}>Keep them</button>
    </div>
  </div>`;
}

/** A place to draw on, what comes of it, and what the models say that it is. @param {{taking: TakingPart}} properties */
function Draw({ taking }) {
  const [strokes, setStrokes] = useState(/** @type {Stroke[]} */ ([]));
  const [shown, setShown] = useState(/** @type {Float32Array | null} */ (null));
  const [said, setSaid] = useState("");
  const pad = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const stroke = useRef(/** @type {Stroke | null} */ (null));
  const pixels = strokes.length ? digitOf(strokes) : shown;
  const clear = () => {
    setStrokes([]);
    setShown(null);
  };
  const draw = () => {
    const canvas = pad.current;
    if (!canvas) return;
    canvas.width = canvas.height = Math.round(canvas.clientWidth * (devicePixelRatio || 1));
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.lineWidth = canvas.width / 11;
    pen.lineCap = pen.lineJoin = "round";
    pen.strokeStyle = shade("--ink");
    for (const points of stroke.current ? [...strokes, stroke.current] : strokes) {
      pen.beginPath();
      for (const [x, y] of [...points, points[points.length - 1]]) pen.lineTo(x * canvas.width, y * canvas.width);
      pen.stroke();
    }
  };
  useEffect(draw);
  const at = (/** @type {any} */ event) => {
    const box = event.target.getBoundingClientRect();
    stroke.current?.push([(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
    draw();
  };
  const begun = (/** @type {any} */ event) => {
    event.target.setPointerCapture(event.pointerId);
    setShown(null);
    stroke.current = [];
    at(event);
  };
  const ended = () => {
    if (stroke.current) setStrokes([...strokes, stroke.current]);
    stroke.current = null;
  };
  const take = (/** @type {number} */ label) => {
    if (!strokes.length || !pixels) return;
    taking.add({ label, pixels });
    setSaid(`The ${label} is trained on from the next step.`);
    clear();
  };
  const key = (/** @type {any} */ event) => {
    if (/^\d$/.test(event.key)) take(Number(event.key));
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  };
  const show = () => {
    setStrokes([]);
    setShown(TEST[Math.floor(Math.random() * TEST.length)].pixels);
  };
  const read = pixels && taking.reads(pixels);
  return html`<section>
    <h2>Draw a digit</h2>
    <div class="pads">
      <div class="drawing"><canvas ref=${pad} class="pad" tabindex="0" role="application" aria-label="Draw a digit, then press the key of the digit that it is; Escape clears. Without a pointer, Show a test digit."
        onPointerDown=${begun} onPointerMove=${(/** @type {any} */ event) => stroke.current && at(event)} onPointerUp=${ended} onPointerCancel=${ended} onKeyDown=${key}></canvas></div>
      <div>${pixels ? html`<${Picture} digits=${[turned(pixels, taking.kept.degrees)]} columns=${1} words="The digit as the models see it" large=${true} />` : html`<p class="quiet">Here stands what the models see: 8 × 8 pixels.</p>`}</div>
    </div>
    <div class="tools">
      <button type="button" onClick=${clear} disabled=${!pixels}>Clear</button>
      <button type="button" onClick=${show}>Show a test digit</button>
    </div>
    <div class="tools" role="group" aria-label="Which digit it is">
      <span>This is a</span>
      ${LABELS.map((label) => html`<button type="button" disabled=${!strokes.length} onClick=${() => take(label)}>${label}</button>`)}
    </div>
    <p class="quiet" role="status">${said}</p>
    ${read && (read.given || read.trained)
      ? html`<table class="read"><caption>How sure the models are of what it is.</caption>
          <thead><tr><th scope="col">digit</th><th scope="col">the average that came back</th><th scope="col">after training here</th></tr></thead>
          <tbody>${LABELS.map((label) => html`<tr class=${label === best(read.trained ?? read.given) ? "taken" : undefined}>
            <th scope="row">${label}</th>${[read.given, read.trained].map((shares) => html`<td>${shares ? html`<${Share} value=${shares[label]} label=${label} />` : "–"}</td>`)}
          </tr>`)}</tbody></table>`
      : html`<p class="quiet">${taking.models.trained ? "Draw, and the models say what it is." : "Once you have trained, the models say what it is."}</p>`}
  </section>`;
}

/** @param {number[] | undefined} shares */
const best = (shares) => (shares ? shares.indexOf(Math.max(...shares)) : -1);

/** @param {{value: number, label: number}} properties */
const Share = ({ value, label }) => html`<meter min="0" max="1" value=${value} aria-label=${`${label}`}></meter> ${number(value, 2)}`;

/** @param {{digits: Float32Array[], columns: number, words: string, large?: boolean}} properties */
function Picture({ digits, columns, words, large = false }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    if (canvas.current) paint(canvas.current, digits, columns);
  });
  return words ? html`<canvas ref=${canvas} class=${`pixels${large ? " large" : ""}`} role="img" aria-label=${words}></canvas>` : html`<canvas ref=${canvas} class="pixels" aria-hidden="true"></canvas>`;
}
