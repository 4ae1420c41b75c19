/** Finds updates and clients of the whole ledger by the beginning of their ids. */
import { html, useState } from "./vendor/htm-3.1.1/preact.js";
import { getJson } from "./api.js";
import { authorName, brief, count } from "./words.js";

export const DIGITS = /^(key:|hash:)?[0-9a-f]{1,64}$/;

/** What of the whole ledger begins so. @param {string} text Of the form of DIGITS. @returns {Promise<{updates: any[], authors: string[], is_all: boolean}>} */
export const beginning = (text) => getJson(`/v1/view/search?text=${encodeURIComponent(text)}`);

/** Opens what is found; of several things, lists them. */
export function Find() {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [trouble, setTrouble] = useState("");
  const clear = () => {
    setFound(null);
    setTrouble("");
  };
  const go = (/** @type {string} */ address) => {
    clear();
    location.hash = address;
  };
  const find = async (/** @type {any} */ event) => {
    event.preventDefault();
    clear();
    const text = new FormData(event.target).get("text")?.toString().trim().toLowerCase() ?? "";
    if (!text) return;
    if (!DIGITS.test(text)) return setTrouble("ids are digits and the letters a to f");
    try {
      const answer = await beginning(text);
      const addresses = [
        ...answer.updates.map((/** @type {any} */ each) => `#/updates/${each.transaction}`),
        ...answer.authors.map((/** @type {string} */ each) => `#/clients/${encodeURIComponent(each)}`),
      ];
      if (!addresses.length) setTrouble("nothing in this ledger begins so");
      else if (addresses.length === 1) go(addresses[0]);
      else setFound(answer);
    } catch (error) {
      setTrouble(/** @type {Error} */ (error).message);
    }
  };
  return html`<form class="find" onSubmit=${find} role="search" onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && clear()}>
    <input name="text" placeholder="update or client" aria-label="Beginning of an update's id, or of a client's" size="18" onInput=${clear} />
    ${trouble && html`<span class="bad" role="alert"> ${trouble}</span>`}
    ${found &&
    html`<ul class="found" role="list" aria-label="What begins so">
      ${found.updates.map(
        (/** @type {any} */ each) =>
          html`<li><a href=${`#/updates/${each.transaction}`} onClick=${clear}>update <code>${brief(each.transaction)}</code></a>, #${count(each.arrival)}, of ${authorName(each.author)}</li>`,
      )}
      ${found.authors.map(
        (/** @type {string} */ each) =>
          html`<li><a href=${`#/clients/${encodeURIComponent(each)}`} onClick=${clear}>client <code>${authorName(each)}</code></a></li>`,
      )}
      ${!found.is_all && html`<li class="quiet">and more: say more digits</li>`}
    </ul>`}
  </form>`;
}
