// The form for the API key.

import { keepKey } from "./client.js";

export class KeyForm {
  /** form, field: the elements. problem: a Problem. onKey(): called when there is a new key. */
  constructor({ form, field }, problem, onKey) {
    this.form = form;
    this.field = field;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const key = field.value.trim();
      if (key === "") {
        problem.note("Enter the API key.");
        return;
      }
      problem.reset();
      if (keepKey(key)) onKey();
      else problem.show("The API key is wrong.");
    });
  }

  set isShown(isShown) {
    this.form.hidden = !isShown;
  }

  /** If the form has the focus, give it to the element `next`. */
  leave(next) {
    if (this.form.contains(document.activeElement)) next.focus();
  }

  /**
   * Show the form. Focus its field, unless the user writes a text or the glossary: the next keys would go into the
   * field.
   */
  ask() {
    this.isShown = true;
    const writesIn = document.activeElement?.closest("textarea");
    if (!writesIn || writesIn.value === "") this.field.focus();
  }
}
