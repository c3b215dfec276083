// What a list shows, kept in the page's address: whoever gets the link sees the same, and so does who comes back.

const lists = new Map();

const pageOf = () => location.pathname.replace(/^\/console\/?/, "") || "keys";

// What the address says under this name.
export const told = (name) => new URLSearchParams(location.search).get(name) ?? "";

// Puts these into the address; what is empty goes out of it.
export function keep(changes) {
  const params = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  history.replaceState(history.state, "", `${location.pathname}${text === "" ? "" : `?${text}`}`);
  noted();
}

// The list that is shown now is the one that a way back leads to.
export const noted = () => lists.set(pageOf(), location.search);

export const lastOf = (page) => `${page}${lists.get(page) ?? ""}`;

// Whether the page that is drawn is one that somebody comes back to.
let isBack = false;
export const comeBack = (is) => { isBack = is; };
export const isComingBack = () => isBack;
