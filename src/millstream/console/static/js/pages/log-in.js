// Where the console is for users of the cluster: name and password.

import * as api from "../api.js";
import { field, h, put } from "../dom.js";
import { failureBox, heading } from "../page.js";

export function logInPage(main, done) {
  const user = h("input", { autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = h("input", { type: "password", autocomplete: "current-password", required: true });
  const trouble = h("div");
  const submit = h("button", { class: "button first", type: "submit" }, "Log in");
  const form = h("form", {
    class: "log-in", onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        await api.logIn(user.value, password.value);
        password.value = "";
        await done();
      } catch (error) {
        put(trouble, failureBox(error));
        password.select();
      }
      submit.disabled = false;
    },
  }, field("User of the cluster", user), field("Password", password), trouble, submit);
  put(main, heading("Log in"), form);
  user.focus();
}
