// The form for the API key.

import { keepKey } from "./client.js";

export class KeyForm {
  /**
   * form, field: the elements. text: the text area. It gets the focus if the form has it when it is hidden.
   * problem: a Problem. onKey(): called when there is a new key.
   */
  constructor({ form, field, text }, problem, onKey) {
    this.form = form;
    this.field = field;
    this.text = text;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const key = field.value.trim();
      if (key === "") {
        problem.note("Enter the API key.");
        return;
      }
      problem.hide();
      if (keepKey(key)) onKey();
      else problem.show("The API key is wrong.");
    });
  }

  set isShown(isShown) {
    const hadFocus = this.form.contains(document.activeElement);
    this.form.hidden = !isShown;
    if (hadFocus && !isShown) this.text.focus();
  }

  /** Show the form. Focus its field, unless the user writes a text: the next keys would go into the field. */
  ask() {
    this.isShown = true;
    if (document.activeElement !== this.text || this.text.value === "") this.field.focus();
  }
}
