/** What an update's training changed, tensor by tensor, how alike it and its parents are there, and who built on it. */
import { html, useState } from "../vendor/htm-3.1.1/preact.js";
import { getJson } from "../api.js";
import { Author, Link, Table } from "../parts.js";
import { cosines, fetched } from "../similarity.js";
import { brief, count, number, percent, size } from "../words.js";

/** @typedef {import("../ledger.js").Ledger} Ledger */

/** @param {{ledger: Ledger, said: any, known: any}} properties */
export function Lineage({ ledger, said, known }) {
  const [compared, setCompared] = useState(/** @type {Record<string, Record<string, number>>} */ ({}));
  const [doing, setDoing] = useState("");
  const isOf = (/** @type {string} */ id) => ledger.updates.get(ledger.arrivals.get(id) ?? -1);
  const children = (ledger.children.get(known.arrival) ?? []).map((each) => ledger.updates.get(each)).filter(Boolean);
  /** @type {string[]} */
  const parents = said.parents.filter((/** @type {string} */ id) => id !== ledger.genesis.ledger);
  const compare = async (/** @type {string[]} */ ids) => {
    const found = { ...compared };
    try {
      setDoing("asking for models …");
      const genesis = await fetched(ledger.genesis, ledger.genesis.model);
      const own = await fetched(ledger.genesis, said.model);
      for (const [place, id] of ids.filter((each) => !found[each]).entries()) {
        setDoing(`comparing with ${place + 1} of ${ids.length} …`);
        const other = await fetched(ledger.genesis, await linkOf(id));
        found[id] = cosines(own, other, genesis);
        setCompared({ ...found });
      }
      setDoing("");
    } catch (error) {
      setDoing(/** @type {Error} */ (error).message);
    }
  };
  const shown = parents.filter((id) => compared[id]);
  const shares = new Map(known.parents.map((/** @type {any} */ each) => [each.transaction, each.share]));
  const isSame = new Set(shares.values()).size === 1; // then it is said once
  return html`<h2>What it descends from</h2>
    ${parents.length
      ? html`<${Table} name=${`parents-${brief(said.id)}`} caption=${`The updates whose models were averaged into the one that training began with.${isSame && parents.length > 1 ? ` Each counts for at most ${percent(/** @type {number} */ (shares.get(parents[0])))} of a value of it.` : ""}`} size=${16}
            head=${[{ name: "update" }, { name: "client" }, ...(isSame ? [] : [{ name: "at most, of the average", number: true }]), { name: "tensors compared" }]} more=${isSame ? ["at most, of the average"] : []}
            rows=${parents.map((id) => [html`<${Link} id=${id} />`, author(ledger, isOf(id)), ...(isSame ? [] : [percent(shares.get(id) ?? 0)]), compared[id] ? "yes" : html`<button type="button" disabled=${doing.endsWith("…")} onClick=${() => void compare([id])}>compare</button>`])}
            plain=${parents.map((id) => [id, isOf(id)?.author ?? "", ...(isSame ? [] : [shares.get(id) ?? ""]), compared[id] ? "yes" : "no", ...(isSame ? [shares.get(id) ?? ""] : [])])} />
          <div class="tools">
            <button type="button" disabled=${doing.endsWith("…") || shown.length === parents.length} onClick=${() => void compare(parents)}>Compare with all ${count(parents.length)}, ${size((parents.length + 2) * said.model.size)}</button>
            <span role="status" class="quiet">${doing}</span>
          </div>`
      : html`<p class="quiet">Genesis alone.</p>`}
    ${known.tensors.length > 0 &&
    html`<h2>What training changed</h2>
      <${Table} name=${`steps-${brief(said.id)}`} caption=${`The step in each tensor: how far the model moved from the average that it began with.${shown.length ? " Then the cosine, in this tensor, of what it and a parent have learnt since genesis; computed here from their models." : ""}`}
        head=${[{ name: "tensor" }, { name: "length of the step", number: true }, { name: "share", number: true }, ...shown.map((id) => ({ name: `alike ${brief(id)}`, number: true }))]}
        rows=${known.tensors.map((/** @type {any} */ each) => [html`<code>${each.tensor}</code>`, number(each.step), percent((each.step / known.step) ** 2), ...shown.map((id) => number(compared[id][each.tensor]))])}
        plain=${known.tensors.map((/** @type {any} */ each) => [each.tensor, each.step, (each.step / known.step) ** 2, ...shown.map((id) => compared[id][each.tensor] ?? "")])} />`}
    <h2>Who built on it</h2>
    ${children.length
      ? html`<${Table} name=${`children-${brief(said.id)}`} caption="The updates that were trained from it, as far as this page holds them." size=${16} head=${[{ name: "update" }, { name: "client" }, { name: "with other models", number: true }]}
          rows=${children.map((each) => [html`<${Link} id=${/** @type {any} */ (each).id} />`, author(ledger, each), /** @type {any} */ (each).parents.length - 1])}
          plain=${children.map((each) => [/** @type {any} */ (each).id, /** @type {any} */ (each).author, /** @type {any} */ (each).parents.length - 1])} />`
      : html`<p class="quiet">None of the updates that this page holds.</p>`}`;
}

/** @param {string} id @returns {Promise<import("../similarity.js").ModelLink>} */
const linkOf = async (id) => (await getJson(`/v1/transactions/${id}`)).model;

/** @param {Ledger} ledger @param {{author: string} | undefined} update */
const author = (ledger, update) => (update ? html`<${Author} ledger=${ledger} author=${update.author} />` : "–");
