/** A simulation's runs beside one another: each method's curve, those without a ledger too. */
import { html, useEffect, useState } from "../vendor/htm-3.1.1/preact.js";
import { Chart, Choice, Copy, Empty, Table } from "../parts.js";
import { colour, count, number, numberOf, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

const OVER = { round: "rounds", virtual_time_s: "virtual time", bytes: "bytes sent" };
const LINES = { method: "mean of the seeds", run: "each run" };
/** What a figure of rounds.csv is called here. @param {string} figure */
const called = (figure) => (figure === "communities" ? "clusters" : figure.replaceAll("_", " "));
const AGAIN_MS = 5000; // a run that goes on is read again

/** @param {{ledger: Ledger, filters: URLSearchParams}} properties */
export function Runs({ ledger, filters }) {
  const { name, runs, run: shown } = ledger.source;
  const [trouble, setTrouble] = useState("");
  const goesOn = runs.some((/** @type {any} */ each) => !each.is_finished);
  useEffect(() => {
    if (!goesOn) return undefined;
    const again = () => ledger.identify().then(() => (setTrouble(""), ledger.changed())).catch((error) => setTrouble(error.message));
    const clock = setInterval(() => void again(), AGAIN_MS);
    return () => clearInterval(clock);
  }, [goesOn]);
  const settings = [...new Set(runs.map(settingOf))];
  const setting = filters.get("setting") ?? settings[0];
  const these = runs.filter((/** @type {any} */ each) => settingOf(each) === setting);
  const figures = [...new Set(these.flatMap((/** @type {any} */ each) => Object.keys(each.columns)))].filter((each) => !(each in OVER));
  const figure = filters.get("figure") ?? (figures.includes("accuracy") ? "accuracy" : (figures[0] ?? ""));
  const over = filters.get("over") ?? "round";
  const lines = filters.get("lines") ?? "method";
  const { data, series } = curves(these, figure, over, lines);
  return html`<h1>Runs of ${name}</h1>
    ${trouble && html`<p class="bad" role="alert">${trouble}</p>`}
    <p>${numberOf(runs.length, "run")} of a simulation: many clients on one machine, in virtual time. ${
      shown
        ? html`The other views show the ledger of <code>${shown}</code>: its updates, signatures and servers are the simulation's own. Models that nobody can be offered any more were dropped, clients report no metrics, and selections, which the pages of updates show, are kept in <code>evidence.jsonl</code> in its folder.`
        : "None of them has left a ledger: methods such as FedAvg have curves alone, and a run leaves its ledger when it ends."
    }</p>
    ${figures.length
      ? html`<div class="tools">
            ${settings.length > 1 && html`<${Choice} name="setting" label="Of" value=${setting} options=${Object.fromEntries(settings.map((each) => [each, each]))} />`}
            <${Choice} name="figure" label="Metric" value=${figure} options=${Object.fromEntries(figures.map((each) => [each, called(each)]))} />
            <${Choice} name="over" label="over" value=${over} options=${OVER} />
            <${Choice} name="lines" label="A line for" value=${lines} options=${LINES} />
          </div>
          <${Chart} name=${called(figure)} x=${/** @type {any} */ (OVER)[over]} data=${data} series=${series} />`
      : html`<${Empty} title="No round has been evaluated yet."><p>They are, every so many rounds (<code>run.evaluate_every</code>).</p><//>`}
    <h2>All runs</h2>
    <${Table} name="runs" caption="After the last round that was evaluated. A copied command shows the ledger of that run, in a terminal of this machine." marked=${(/** @type {number} */ row) => runs[row].folder === shown}
      head=${[{ name: "method" }, { name: "data, model, participation" }, { name: "seed", number: true }, { name: "rounds" }, { name: "accuracy", number: true }, { name: "of the worst tenth", number: true }, { name: "clusters", number: true }, { name: "sent", number: true }, { name: "ledger", text: true }]}
      rows=${runs.map((/** @type {any} */ each) => [
        each.method, settingOf(each), each.seed, roundsOf(each), number(last(each, "accuracy")), number(last(each, "worst_decile")), last(each, "communities") ?? "–", sent(each),
        each.folder === shown ? "shown here" : each.has_ledger ? html`<code>${each.folder}</code> <${Copy} text=${`dag-acfl ledger view ${each.path}`}>Copy the command<//>` : "none",
      ])}
      plain=${runs.map((/** @type {any} */ each) => [each.method, settingOf(each), each.seed, roundsOf(each), last(each, "accuracy") ?? "", last(each, "worst_decile") ?? "", last(each, "communities") ?? "", last(each, "bytes") ?? "", each.folder])} />`;
}

/** @param {any} run */
const settingOf = (run) => `${run.setting}, ${run.participation}`;

/** @param {any} run @param {string} figure @returns {number | null} */
const last = (run, figure) => run.columns[figure]?.at(-1) ?? null;

/** @param {any} run */
const sent = (run) => (last(run, "bytes") === null ? "–" : size(/** @type {number} */ (last(run, "bytes"))));

/** @param {any} run */
const roundsOf = (run) => (run.is_finished ? count(run.rounds) : `${count((last(run, "round") ?? -1) + 1)} of ${count(run.rounds)}, not finished`);

/** @param {any[]} runs @param {string} figure @param {string} over @param {string} lines */
function curves(runs, figure, over, lines) {
  const methods = [...new Set(runs.map((each) => each.method))];
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const run of runs) {
    if (!run.columns[figure]) continue;
    const name = lines === "method" ? run.method : `${run.method}, seed ${run.seed}`;
    groups.set(name, [...(groups.get(name) ?? []), run]);
  }
  const drawn = [...groups].map(([name, members]) => {
    const places = Math.max(...members.map((each) => each.columns[figure].length));
    /** @type {Map<number, number | null>} */
    const points = new Map();
    for (let place = 0; place < places; place += 1) {
      const here = members.filter((each) => (each.columns[figure][place] ?? null) !== null);
      if (!here.length) continue;
      const mean = (/** @type {string} */ column) => here.reduce((sum, each) => sum + each.columns[column][place], 0) / here.length;
      points.set(mean(over) + Number(over === "round"), mean(figure)); // after one round, not after round 0
    }
    return { name, points, of: methods.indexOf(members[0].method) };
  });
  const xs = [...new Set(drawn.flatMap((each) => [...each.points.keys()]))].sort((a, b) => a - b);
  return {
    data: [xs, ...drawn.map(({ points }) => xs.map((x) => points.get(x) ?? null))],
    series: drawn.map(({ name, of }) => ({ name, colour: colour(of), width: lines === "method" ? 2 : 1 })),
  };
}

/** What each run cost, beside the formulas of [DAG-ACFL Tables III and IV]. @param {{ledger: Ledger}} properties */
export function RunCosts({ ledger }) {
  const runs = ledger.source.runs.filter((/** @type {any} */ each) => each.costs);
  const bytes = (/** @type {any} */ value) => (typeof value === "number" ? size(value) : "–");
  return html`<h1>Costs</h1>
    ${runs.length
      ? html`<${Table} name="costs" caption="As measured in each run, and as the formulas of [DAG-ACFL Tables III and IV] say for as many clients and bytes."
          head=${[{ name: "method" }, { name: "data, model, participation" }, { name: "seed", number: true }, { name: "traffic of a round", number: true }, { name: "by the formula", number: true }, { name: "formula" }, { name: "ledger", number: true }, { name: "stored by a server, by the formula", number: true }]}
          rows=${runs.map((/** @type {any} */ each) => [each.method, settingOf(each), each.seed, bytes(each.costs.measured_round_bytes), bytes(each.costs.formula_round_bytes), each.costs.communication, bytes(each.costs.measured_ledger_bytes), bytes(each.costs.formula_server_bytes)])}
          plain=${runs.map((/** @type {any} */ each) => [each.method, settingOf(each), each.seed, each.costs.measured_round_bytes, each.costs.formula_round_bytes, each.costs.communication, each.costs.measured_ledger_bytes ?? "", each.costs.formula_server_bytes ?? ""])} />`
      : html`<${Empty} title="No run that is finished states its costs."><p>The formulas are for methods in rounds. What was sent stands in <a href="#/runs?over=bytes">Runs</a>.</p><//>`}`;
}
