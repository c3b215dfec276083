// The way in: a token of the server becomes a session of this browser.

import { h } from "./dom.js";
import { button } from "./dialogs.js";
import { logIn } from "./server.js";

export function login(done) {
  const token = h("input", { id: "token", type: "password", name: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const submit = button(null, "Log in", null, { kind: "main" });
  submit.type = "submit";
  const onsubmit = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    wrong.textContent = "";
    try {
      await logIn(token.value);
      token.value = "";
      done();
    } catch (trouble) {
      wrong.textContent = trouble.message;
      submit.disabled = false;
      token.select();
    }
  };
  queueMicrotask(() => token.focus());
  return h(
    "main",
    { id: "main", class: "login", tabindex: -1 },
    h(
      "form",
      { class: "card", onsubmit },
      h("img", { src: "/console/assets/icon.svg", alt: "", width: 44, height: 44 }),
      h("h1", null, "Flowgate"),
      h("p", { class: "faint" }, "Log in with a token of this server: the one it showed when it first started, or a new one from ", h("code", null, "flowgate token create"), "."),
      h("label", { class: "field", for: "token" }, h("span", null, "Token"), token),
      wrong,
      submit,
    ),
  );
}
