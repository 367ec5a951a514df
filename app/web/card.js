// The status and the download link of a file that the server translates, shown in place of a translation.

import { sizeOf, translatedName } from "./files.js";
import { languageName } from "./languages.js";

export class DocumentCard {
  /** parts: {box, state, hint, link, close}, elements. onClose(): the user cancels the work or closes the card. */
  constructor(parts, onClose) {
    this.parts = parts;
    parts.close.addEventListener("click", onClose);
  }

  /** Show that a file waits for the server or for an API key. Returns the status for screen readers. */
  showWait(file) {
    const { box, state, hint, close } = this.parts;
    state.textContent = `${file.name} waits until the server accepts it.`;
    hint.textContent = `${sizeOf(file.size)}.`;
    close.textContent = "Cancel";
    box.hidden = false;
    return state.textContent;
  }

  /** Show that the server translates a file. Returns the status for screen readers. language: the target language. */
  showWork(file, language) {
    this.hide();
    const { box, state, hint, close } = this.parts;
    state.textContent = `Translating ${file.name} into ${languageName(language)}…`;
    hint.textContent = `${sizeOf(file.size)}. A long file takes minutes; keep this page open.`;
    close.textContent = "Cancel";
    box.hidden = false;
    return state.textContent;
  }

  /**
   * Offer the translated file for download. Returns the status for screen readers.
   * blob: the file's content. hasTerms: whether the page has a glossary, which does not apply to files.
   */
  showDone(file, language, { blob, hasTerms }) {
    const { state, hint, link, close } = this.parts;
    const name = translatedName(file.name, language);
    state.textContent = `${file.name} is translated into ${languageName(language)}.`;
    hint.textContent =
      `${sizeOf(blob.size)}, in the format of the original.` + (hasTerms ? " The glossary was not applied." : "");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.textContent = `Download ${name}`;
    link.hidden = false;
    close.textContent = "Close";
    return state.textContent;
  }

  /** Hide the card and release the file. */
  hide() {
    const { box, link } = this.parts;
    box.hidden = true;
    URL.revokeObjectURL(link.href);
    link.removeAttribute("href");
    link.hidden = true;
  }
}
