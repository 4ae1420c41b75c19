/** The address behind #, which says all that a view shows: a view, one thing of it, and its filters. */

export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  return { view, one: decodeURIComponent(rest.join("/")), filters: new URLSearchParams(query) };
}

/** Put filters into the address, where they can be linked to; no step back for each. @param {Record<string, string>} changes */
export function filter(changes) {
  const { view, one, filters } = here();
  for (const [name, value] of Object.entries(changes)) value ? filters.set(name, value) : filters.delete(name);
  const query = filters.toString();
  history.replaceState(null, "", `#/${view}${one ? `/${encodeURIComponent(one)}` : ""}${query ? `?${query}` : ""}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
