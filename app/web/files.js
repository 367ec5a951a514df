// Files, dropped or opened. Text is read in the browser; other formats are translated by the server, if it takes files.

const MAX_BYTES_PER_CHARACTER = 4;
const FORMATS = ".txt,.srt,.vtt,.html,.htm,.md,.markdown,.po,.pot,.json,.docx";

/** What the file dialogue offers where the server takes files. */
export function offerFormats(input) {
  input.accept = FORMATS;
}

/** Whether a file has a format of its own, beyond lines of text. */
export function hasFormat(file) {
  const suffix = /\.[^.]+$/.exec(file.name.toLowerCase())?.[0] ?? "";
  return suffix !== ".txt" && FORMATS.split(",").includes(suffix);
}

/** manual.docx -> manual.de.docx */
export function translatedName(name, language) {
  return name.replace(/(\.[^.]+)?$/, (suffix) => `.${language}${suffix}`);
}

/** The text of a file: {text, isMarkup}. Throws Error with words for people. */
export async function readText(file, maxCharacters) {
  if (file.size > maxCharacters * MAX_BYTES_PER_CHARACTER) {
    throw new Error(`This file is larger than the ${new Intl.NumberFormat("en").format(maxCharacters)} characters that this server takes at once.`);
  }
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("This file is no text in UTF-8.");
  }
  if (text.includes("\0")) throw new Error("This file is no text in UTF-8.");
  return { text, isMarkup: /\.html?$/i.test(file.name) };
}

/** parts: {veil, input, button}. onFile(file): the first of what was dropped or opened. */
export function takeFiles({ veil, input, button }, onFile) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const cover = (isCovered) => veil.classList.toggle("shown", isCovered);
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    cover(true);
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) cover(false);
  });
  document.addEventListener("drop", (event) => {
    cover(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) onFile(file);
  });
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const [file] = input.files;
    if (file) onFile(file);
    input.value = ""; // the same file may be opened again
  });
}
