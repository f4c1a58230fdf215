// The dialog that sends one record, where writes are allowed.

import * as api from "../api.js";
import { button, field, h, put, say } from "../dom.js";
import { failureBox } from "../page.js";

function headersOf(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new api.Failure("A header has the form name=value.", line, "Write one header on each line.");
    return { name: line.slice(0, at).trim(), value: line.slice(at + 1) };
  });
}

export function produceDialog(topic, sent) {
  const partition = h("input", { class: "mono", inputmode: "numeric", placeholder: "as the key says", pattern: "[0-9]*" });
  const key = h("input", { class: "mono", placeholder: "none" });
  const value = h("textarea", { rows: 8, spellcheck: "false", autofocus: true });
  const none = h("input", { type: "checkbox", onchange: () => { value.disabled = none.checked; } });
  const headers = h("textarea", { rows: 2, placeholder: "name=value, one a line", spellcheck: "false" });
  const trouble = h("div");
  const submit = h("button", { class: "button first", type: "submit" }, "Send");
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        const record = { partition: partition.value === "" ? null : Number(partition.value), key: key.value === "" ? null : key.value, value: none.checked ? null : value.value, headers: headersOf(headers.value) };
        const answer = await api.produce(topic, record);
        say(`Sent to partition ${answer.partition} at offset ${answer.offset}`);
        dialog.close();
        sent(answer);
      } catch (error) { put(trouble, failureBox(error)); }
      submit.disabled = false;
    },
  }, trouble, field("Partition", partition), field("Key", key), field("Value", value), h("label", null, none, " Null value (a tombstone)"), field("Headers", headers),
  h("div", { class: "end" }, button("Cancel", () => dialog.close()), submit));
  const dialog = h("dialog", { "aria-labelledby": "produce-title", onclose: () => dialog.remove() }, h("h2", { id: "produce-title" }, "Produce to ", topic), form);
  document.body.append(dialog);
  dialog.showModal();
}
