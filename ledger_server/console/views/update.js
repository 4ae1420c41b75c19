/** One update: what it says, what is known of it, whether that is proven, and why it was trained from these models. */
import { html, useEffect, useRef, useState } from "../vendor/htm-3.1.1/preact.js";
import { getJson } from "../api.js";
import { unhex } from "../client/bytes.js";
import { checkSignature } from "../client/crypto.js";
import { signedBytes, transactionId } from "../client/header.js";
import { cutsOf } from "../cuts.js";
import { Author, Chip, Copy, Link, Table, painting, penOf, save, shade } from "../parts.js";
import { modelBytes } from "../similarity.js";
import { brief, colour, count, number, numberOf, size, time } from "../words.js";
import { Lineage } from "./lineage.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger, one: string}} properties */
export function UpdatePage({ ledger, one }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  useEffect(() => {
    let isShown = true;
    const ask = async () => {
      const said = await getJson(`/v1/transactions/${one}`);
      const known = await getJson(`/v1/view/updates/${one}`);
      const evidence = said.kind === "update" && said.attachment ? await getJson(said.attachment.href).catch(() => null) : simulated(ledger, said, known);
      const held = ledger.updates.get(known.arrival);
      if (!held) await ledger.part(Math.max(0, known.arrival - 500), known.arrival + 500).catch(() => {});
      if (isShown) setFound({ said, known, evidence });
    };
    ask().catch((problem) => isShown && setError(problem.message));
    return () => void (isShown = false);
  }, [one]);
  if (error) return html`<h1>Update ${brief(one)}</h1><p class="bad">${error}</p><p><a href="#/updates">All updates</a></p>`;
  if (!found) return html`<h1>Update ${brief(one)}</h1><p class="quiet">Asking …</p>`;
  const { said, known, evidence } = found;
  const curl = `curl ${location.origin}/v1/transactions/${said.id}`;
  const isGenesis = said.kind === "genesis";
  const cluster = ledger.cluster(said.author);
  return html`<h1>${isGenesis ? "Genesis" : "Update"} <code>${brief(said.id)}</code></h1>
    <div class="tools">
      <${Copy} text=${said.id}>Copy the id<//>
      <${Copy} text=${curl}>Copy as curl<//>
      <${Download} said=${said} />
      <button type="button" onClick=${() => save(`${brief(said.id)}.header`, unhex(said.header), "application/octet-stream")}>Download the header</button>
      ${evidence && html`<button type="button" onClick=${() => save(`${brief(said.id)}.selection.json`, JSON.stringify(evidence, null, 1), "application/json")}>Download the selection</button>`}
      <a href=${`#/updates?update=${said.id}&end=${Math.min(ledger.length, known.arrival + 40)}&span=120`}>Show it in the graph</a>
      ${!isGenesis && ledger.source.kind === "server" && html`<a href=${`#/operate?part=quarantine&subject=update:${said.id}`}>Quarantine it …</a>`}
    </div>
    <div class="columns">
      <section>
        <h2>What it says</h2>
        <dl>
          <dt>Id</dt><dd><code>${said.id}</code></dd>
          <dt>Client</dt><dd><${Author} ledger=${ledger} author=${said.author} />, its update ${said.sequence + 1}</dd>
          <dt>Trained on</dt><dd>${numberOf(said.num_examples, "example")}</dd>
          ${Object.entries(said.metrics)
            .filter(([name]) => !name.startsWith("_"))
            .map(([name, value]) => html`<dt>${name}</dt><dd>${number(/** @type {number} */ (value))}</dd>`)}
          ${said.noise_std > 0 && html`<dt>Noise added</dt><dd>${number(said.noise_std, 5)} a value</dd>`}
          <dt>Model</dt><dd>${size(said.model.size)}, <code>${brief(said.model.digest)}</code></dd>
          <dt>Made</dt><dd>${time(said.created_at_ms)}, by its own clock</dd>
        </dl>
      </section>
      <section>
        <h2>What is known of it</h2>
        <dl>
          <dt>Received</dt><dd>${time(said.receipt.received_at_ms)} by server <code>${brief(said.receipt.issuer)}</code></dd>
          <dt>Place</dt><dd>#${count(known.arrival)} here, ${numberOf(said.depth, "update")} from genesis on the longest way${said.is_tip ? "; nobody has built on it yet" : ""}</dd>
          ${cluster >= 0 && html`<dt>Cluster of its client</dt><dd><${Chip} place=${cluster} />${cluster + 1}</dd>`}
          <dt>Size of the step</dt><dd>${number(known.step)} (of the model: ${number(known.norm)})</dd>
          ${known.taint > 0 && html`<dt>Taint</dt><dd class="bad">${number(known.taint)} of it descends from quarantined steps</dd>`}
          ${known.is_withheld && html`<dt>Withheld</dt><dd class="bad">Offered to nobody, because of a quarantine.</dd>`}
          ${known.alarms.map((/** @type {any} */ alarm) => html`<dt>Alarm: ${alarm.kind}</dt><dd class="bad">${alarm.detail}</dd>`)}
        </dl>
        <h3>Is it genuine?</h3>
        <${Proof} said=${said} />
      </section>
    </div>
    ${evidence && html`<${Why} ledger=${ledger} said=${said} known=${known} evidence=${evidence} />`}
    ${!evidence && !isGenesis && html`<h2>Why these models?</h2><p>It was trained from ${said.parents.length === 1 ? "one model, without a selection" : "these models"}: ${said.parents.map((/** @type {string} */ each) => html`<${Link} id=${each} /> `)}${ledger.source.kind === "simulation" && said.parents.length > 1 ? html`What it chose from stands in <code>evidence.jsonl</code>, in the run's folder.` : ""}</p>`}
    ${!isGenesis && html`<${Lineage} ledger=${ledger} said=${said} known=${known} />`}`;
}

/**
 * The selection of a simulation's update, which its run's folder has, as a server would say it; null where it has none.
 *
 * @param {Ledger} ledger @param {any} said @param {any} known
 */
function simulated(ledger, said, known) {
  if (!known.offered) return null;
  const taken = new Set(known.offered.map((/** @type {any} */ each) => each.update));
  return {
    asker: { update: said.parents.find((/** @type {string} */ each) => !taken.has(each)) },
    selector: ledger.genesis?.document.selector,
    candidates: known.offered.map((/** @type {any} */ each) => ({ ...each, update_similarity: each.similarity, score: null, selected: each.update !== null })),
  };
}

/** @param {{said: any}} properties */
function Download({ said }) {
  const [state, setState] = useState("");
  const get = async () => {
    setState("asking …");
    try {
      save(`${brief(said.id)}.safetensors`, await modelBytes(said.model), "application/octet-stream");
      setState("");
    } catch (error) {
      setState(/** @type {Error} */ (error).message);
    }
  };
  return html`<button type="button" onClick=${get}>Download the model</button>${state && html`<span role="status">${state}</span>`}`;
}

/** The id and both signatures, computed in this browser from the header's bytes. @param {{said: any}} properties */
function Proof({ said }) {
  const [proof, setProof] = useState(/** @type {string[][] | null} */ (null));
  useEffect(() => {
    void check(said).then(setProof);
  }, [said.id]);
  if (!proof) return html`<p class="quiet">Checking signatures …</p>`;
  return html`<ul class="checks" aria-label="What this browser has checked">
    ${proof.map(([state, words]) => html`<li class=${state}>${state === "good" ? "✓" : state === "bad" ? "✗" : "–"} ${words}</li>`)}
  </ul>`;
}

/** @param {any} said @returns {Promise<string[][]>} */
async function check(said) {
  const holds = async (/** @type {string} */ key, /** @type {Uint8Array} */ message, /** @type {string} */ signature) => {
    try {
      await checkSignature(key, message, signature);
      return true;
    } catch {
      return false;
    }
  };
  const id = await transactionId(unhex(said.header));
  const { issuer, received_at_ms: at, members_version: version, signature } = said.receipt;
  const receipt = await holds(issuer, signedBytes("receipt", said.id, at, version), signature);
  const lines = [
    id === said.id ? ["good", "The id is that of the header's bytes."] : ["bad", "The id is NOT that of the header's bytes."],
    receipt ? ["good", "The server's receipt is signed by its key."] : ["bad", "The server's receipt is NOT signed by its key."],
  ];
  const [kind, key] = said.author.split(":");
  if (kind !== "key") return [...lines, ["quiet", "The client has no key: only the server vouches for who it is."]];
  if (!said.author_signature) return [...lines, ["quiet", "Genesis has no signature but the receipt."]];
  const own = await holds(key, signedBytes("author", said.id), said.author_signature);
  return [...lines, own ? ["good", "The client has signed it."] : ["bad", "The client has NOT signed it."]];
}

/** @param {{ledger: Ledger, said: any, known: any, evidence: any}} properties */
function Why({ ledger, said, known, evidence }) {
  const { candidates, asker } = evidence;
  const taken = candidates.filter((/** @type {any} */ each) => each.selected);
  const shares = new Map(known.parents.map((/** @type {any} */ each) => [each.transaction, each.share]));
  const last = taken.at(-1);
  const first = candidates.find((/** @type {any} */ each) => !each.selected);
  const selector = evidence.selector?.name ?? evidence.selector;
  const cuts = cutsOf(selector, candidates);
  const isSimulated = known.offered !== null;
  const source = isSimulated ? "evidence.jsonl in the run's folder" : `the selection ${brief(said.attachment.digest)}`;
  return html`<h2>Why these models?</h2>
    <p class="said">${words(said, evidence, taken, first, last)}</p>
    <${Ranks} candidates=${candidates} ledger=${ledger} cuts=${cuts} />
    <${Table} name=${`why-${brief(said.id)}`} caption=${`The candidates that ${source} names, as the selector ${selector} ranked them; those taken are marked.`} size=${32}
      marked=${(/** @type {number} */ row) => candidates[row]?.selected}
      head=${[{ name: "rank", number: true }, { name: "update" }, { name: "client" }, { name: isSimulated ? "similarity" : "similarity of what was learnt", number: true }, ...(isSimulated ? [] : [{ name: "of the models", number: true }]), ...(cuts.name ? [{ name: cuts.name, number: true }] : [])]} more=${["at most, of the average"]}
      rows=${candidates.map((/** @type {any} */ each, /** @type {number} */ place) => [
        place + 1, each.update ? html`<${Link} id=${each.update} />` : "not taken", html`<${Author} ledger=${ledger} author=${each.author} />`, number(each.update_similarity), ...(isSimulated ? [] : [number(each.similarity)]), ...(cuts.name ? [number(cuts.scores[place])] : []),
      ])}
      plain=${candidates.map((/** @type {any} */ each, /** @type {number} */ place) => [place + 1, each.update ?? "", each.author, each.update_similarity, ...(isSimulated ? [] : [each.similarity]), ...(cuts.name ? [cuts.scores[place] ?? ""] : []), each.selected ? (shares.get(each.update) ?? 0) : ""])} />
    ${said.parents.includes(asker?.update) && html`<p>The client's own newest update, <${Link} id=${asker.update} />, is part of the average, too.</p>`}`;
}

/** @param {any} said @param {any} evidence @param {any[]} taken @param {any} first @param {any} last */
function words(said, evidence, taken, first, last) {
  const others = evidence.candidates.length;
  const who = evidence.asker?.update ? `its update ${brief(evidence.asker.update)}` : said.sequence && !said.attachment ? "its last update" : "its first model";
  const clients = new Set(taken.map((each) => each.author)).size;
  if (!taken.length) return `The client asked with ${who}. ${others === 1 ? "The one model that was compared did not resemble its own enough" : `None of the ${count(others)} models that were compared resembled its own enough`}, so it went on with its own alone.`;
  const gap = first && last ? ` The last one taken resembles it by ${number(last.update_similarity, 2)}, the next would by ${number(first.update_similarity, 2)}: that drop is where the list was cut.` : "";
  return `The client asked with ${who}. Of ${numberOf(others, "model")} that were named, ${taken.length} (of ${numberOf(clients, "client")}) ${taken.length === 1 ? "resembles" : "resemble"} what it has learnt, and ${taken.length === 1 ? "was" : "were"} averaged${said.parents.includes(evidence.asker?.update) ? " with its own" : ""}.${gap}`;
}

/** The ranked similarities, how good a cut before each would be, and the one that was made, as a picture. @param {{candidates: any[], ledger: Ledger, cuts: import("../cuts.js").Cuts}} properties */
function Ranks({ candidates, ledger, cuts }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    const canvas = place.current;
    if (!canvas || !candidates.length) return undefined;
    return painting(canvas, () => {
      const [width, height] = [canvas.clientWidth, 200];
      const pen = penOf(canvas, width, height);
      const [ink, quiet] = [shade("--ink"), shade("--quiet")];
      const values = candidates.map((each) => each.update_similarity);
      const low = Math.min(0, ...values);
      const [left, top, bottom] = [36, 10, height - 24];
      const lot = Math.min(40, (width - left - 10) / candidates.length);
      const y = (/** @type {number} */ value) => bottom - ((value - low) / (1 - low)) * (bottom - top);
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = quiet;
      for (const mark of [0, 0.5, 1]) {
        pen.fillText(mark.toFixed(1), 8, y(mark));
        pen.globalAlpha = 0.3;
        pen.fillRect(left, y(mark), width - left - 8, 1);
        pen.globalAlpha = 1;
      }
      candidates.forEach((each, at) => {
        pen.fillStyle = colour(ledger.cluster(each.author));
        pen.globalAlpha = each.selected ? 1 : 0.35;
        pen.fillRect(left + at * lot + 1, Math.min(y(each.update_similarity), y(0)), Math.max(1, lot - 2), Math.abs(y(each.update_similarity) - y(0)));
      });
      pen.globalAlpha = 1;
      pen.strokeStyle = ink;
      if (cuts.name) {
        const most = cuts.scores.reduce((/** @type {number} */ high, each) => Math.max(high, each ?? 0), 1e-9);
        pen.beginPath();
        cuts.scores.forEach((score, at) => score !== null && pen.lineTo(left + at * lot, bottom - (score / most) * (bottom - top)));
        pen.stroke();
      }
      const cut = candidates.filter((each) => each.selected).length;
      if (cut && cut < candidates.length) {
        pen.setLineDash([4, 3]);
        pen.beginPath();
        pen.moveTo(left + cut * lot, top);
        pen.lineTo(left + cut * lot, bottom);
        pen.stroke();
        pen.fillStyle = ink;
        pen.fillText(`cut: ${cut} taken`, left + cut * lot + 5, top + 4);
      }
      pen.fillStyle = quiet;
      pen.fillText(`rank; bars in the colours of clusters, those not taken pale${cuts.name ? "; line: the score of a cut there, of the highest" : ""}`, left, height - 12, width - left - 8);
    });
  }, [candidates, ledger.clusters]);
  return html`<div class="drawing"><canvas ref=${place} class="ranks" height="200" role="img" aria-label="Similarity by rank; the table below has the figures"></canvas></div>`;
}
