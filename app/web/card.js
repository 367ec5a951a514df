// A file that the server translates whole, in the translation's place: what happens to it, and the way to it.

import { sizeOf, translatedName } from "./files.js";
import { languageName } from "./languages.js";

export class DocumentCard {
  /** parts: {box, state, hint, link, close}, elements. onClose(): it was given up or put away. */
  constructor(parts, onClose) {
    this.parts = parts;
    parts.close.addEventListener("click", onClose);
  }

  /** A file is at the server. language: the target's. */
  showWork(file, language) {
    this.hide();
    const { box, state, hint, close } = this.parts;
    state.textContent = `Translating ${file.name} into ${languageName(language)}…`;
    hint.textContent = `${sizeOf(file.size)}. A long file takes minutes; keep this page open.`;
    close.textContent = "Cancel";
    box.hidden = false;
  }

  /** The translated file is here. blob: its content. Returns what there is to say of it. */
  showDone(file, language, { blob, hasTerms }) {
    const { state, hint, link, close } = this.parts;
    const name = translatedName(file.name, language);
    state.textContent = `${file.name} is translated into ${languageName(language)}.`;
    hint.textContent =
      `${sizeOf(blob.size)}, in the format of the original.` + (hasTerms ? " The glossary was not used." : "");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.textContent = `Download ${name}`;
    link.hidden = false;
    close.textContent = "Close";
    return state.textContent;
  }

  /** Nothing of it is left. */
  hide() {
    const { box, link } = this.parts;
    box.hidden = true;
    URL.revokeObjectURL(link.href);
    link.removeAttribute("href");
    link.hidden = true;
  }
}
