// What is asked of the server. A change brings the session's own token along.

export class Trouble extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let session = null;
let lost = () => {};

export const current = () => session;
export const whenLost = (then) => { lost = then; };

async function ask(method, path, { headers = {}, body } = {}) {
  const own = method === "GET" ? {} : { "x-flowgate-csrf": session?.csrf ?? "" };
  let response;
  try {
    response = await fetch(path, { method, headers: { ...own, ...headers }, body, credentials: "same-origin" });
  } catch {
    throw new Trouble(0, "the server cannot be reached");
  }
  const text = await response.text();
  let value = null;
  try {
    value = text === "" ? null : JSON.parse(text);
  } catch {
    value = text;
  }
  if (response.ok) return value;
  const trouble = new Trouble(response.status, value?.error ?? `the server answered ${response.status}`);
  trouble.value = value;
  if (response.status === 401 && session !== null) {
    session = null;
    lost();
  }
  throw trouble;
}

const query = (params) => {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== "" && value !== null && value !== undefined) search.append(name, value);
  }
  const text = search.toString();
  return text === "" ? "" : `?${text}`;
};

const json = (value) => ({ headers: { "content-type": "application/json" }, body: JSON.stringify(value) });

// What the console alone has.
export const data = (path, params) => ask("GET", `/console/data/${path}${query(params)}`);
export const change = (path, value) => ask("POST", `/console/data/${path}`, json(value));
// The API, behind the session.
export const get = (path, params) => ask("GET", `/console/api/v2/${path}${query(params)}`);
export const post = (path, params, given) => ask("POST", `/console/api/v2/${path}${query(params)}`, given);
export const put = (path, value) => ask("POST", `/console/api/v2/${path}`, json(value));
export const patch = (path) => ask("PATCH", `/console/api/v2/${path}`);
export const remove = (path, params) => ask("DELETE", `/console/api/v2/${path}${query(params)}`);

export const part = encodeURIComponent;

// A key as a part of the page's address: a browser takes `.` and `..` for steps on the way.
export const keyPath = (key) => `keys/${/^(\.{1,2}$|~)/.test(key) ? "~" : ""}${part(key)}`;
export const keyOf = (name) => name.replace(/^~/, "");
// A key may be any text: it is asked for, changed and explained by its name.
export const readKey = (key) => data("key", { key });
export const changeKey = (key, what, params) => ask("POST", `/console/data/key${query({ key, do: what, ...params })}`);
export const whyKey = (key) => ["explain", { what: `key:${key}` }];

export async function logIn(token) {
  session = await ask("POST", "/console/session", json({ token }));
  return session;
}

// Whether this browser is still logged in, as far as the server can be asked; if not, whoever wants to know is told.
export async function isStillIn() {
  await ask("GET", "/console/session").catch(() => {});
  return session !== null;
}

export async function logOut() {
  await ask("DELETE", "/console/session").catch(() => {});
  session = null;
}

// The session of this browser; where the server is for development, one is opened without asking.
export async function resume() {
  try {
    session = await ask("GET", "/console/session");
  } catch (trouble) {
    if (trouble.status !== 401) throw trouble;
    if (!trouble.value?.isOpen) return null;
    await logIn("");
  }
  return session;
}
