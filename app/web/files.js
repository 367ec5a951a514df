// Text files, dropped or opened: read in the browser, sent as any other text.

const MAX_BYTES_PER_CHARACTER = 4;

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
