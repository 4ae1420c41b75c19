/** The address behind #, which says all that a view shows: a view, one thing of it, and its filters. */

export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  return { view, one: decoded(rest.join("/")), filters: new URLSearchParams(query) };
}

/** What somebody has cut off or mistyped, such as "%e", as it is. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const SEEN = "seen"; // a step of the history that was shown once; a link that was just followed has no state

/**
 * How many updates the address says that the ledger is to be shown after; null: all. A link within the page carries on
 * what is shown now; a step back or forth has its own.
 *
 * @param {number | null} now
 */
export function travelled(now) {
  const at = here().filters.get("at") ?? "";
  return /^\d{1,15}$/.test(at) ? Number(at) : history.state === SEEN ? null : now;
}

/** Put filters into the address, where they can be linked to; no step back for each. @param {Record<string, string>} changes */
export function filter(changes) {
  const { view, one, filters } = here();
  for (const [name, value] of Object.entries(changes)) value ? filters.set(name, value) : filters.delete(name);
  const query = filters.toString();
  history.replaceState(SEEN, "", `#/${view}${one ? `/${encodeURIComponent(one)}` : ""}${query ? `?${query}` : ""}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
