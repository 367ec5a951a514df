// Dropped and opened files. A short text is read in the browser; other files are translated by the server.

import { languageName } from "./languages.js";

// The maximum number of bytes of a character in UTF-8.
const MAX_BYTES_PER_CHARACTER = 4;
// Suffixes of the formats that the page can send to POST /v1/translate. Other formats would lose their structure if
// they were sent as plain text.
const TEXT_SUFFIXES = [".txt", ".html", ".htm"];
const number = new Intl.NumberFormat("en");
const listed = new Intl.ListFormat("en", { type: "disjunction" });

/** A file is not accepted. The message gives the reason, and what the user can do. */
export class FileRefused extends Error {}

/** Set the formats that the file dialogue offers. facts: the content of assets/server.json. */
export function offerFormats(input, facts) {
  input.accept = suffixesOf(facts).join(",");
}

/** manual.docx -> manual.de.docx */
export function translatedName(name, language) {
  return name.replace(/(\.[^.]+)?$/, (suffix) => `.${language}${suffix}`);
}

/** Format a file size. */
export function sizeOf(numBytes) {
  if (numBytes < 1000) return `${numBytes} bytes`;
  const [unit, name] = numBytes < 1e6 ? [1e3, "kB"] : [1e6, "MB"];
  return `${number.format(Number((numBytes / unit).toPrecision(2)))} ${name}`;
}

/**
 * Why a file is refused by its name or size, with advice; "" if it is not. facts: the content of assets/server.json.
 */
export function checkFile(file, facts) {
  const suffix = suffixOf(file.name);
  if (suffix !== "" && !suffixesOf(facts).includes(suffix)) {
    return (
      `${file.name} is not supported: this server translates ${listed.format(suffixesOf(facts))} files. ` +
      "Save it in one of these formats, or paste its text."
    );
  }
  if (facts.file_suffixes.includes(suffix) && file.size > facts.max_file_bytes) {
    return (
      `${file.name} is larger than the ${sizeOf(facts.max_file_bytes)} that this server accepts. ` +
      "Split it into smaller files."
    );
  }
  return "";
}

/**
 * Read a file. Returns {text, isMarkup} for a text to show and translate, {copy} for a file that the server translates.
 * copy: a File in memory, because a file on disk can change until it is sent. facts: the content of assets/server.json.
 * Throws FileRefused.
 */
export async function readFile(file, facts) {
  const reason = checkFile(file, facts);
  if (reason) throw new FileRefused(reason);
  const suffix = suffixOf(file.name);
  if (facts.file_suffixes.includes(suffix) && suffix !== ".txt") return documentOf(file);
  const isDocument = facts.file_suffixes.includes(suffix);
  const text = file.size <= facts.max_characters * MAX_BYTES_PER_CHARACTER ? utf8(await contentOf(file)) : null;
  if (text?.trim() === "") throw new FileRefused(`${file.name} has no text.`);
  if (text !== null && [...text].length <= facts.max_characters) return { text, isMarkup: suffix.startsWith(".htm") };
  if (isDocument) return documentOf(file);
  if (text === null && file.size <= facts.max_characters * MAX_BYTES_PER_CHARACTER) {
    throw new FileRefused(`${file.name} is not text in UTF-8. Save it as text in UTF-8 and open it again.`);
  }
  const most = number.format(facts.max_characters);
  throw new FileRefused(
    `${file.name} is longer than the ${most} characters that this server accepts at once. ` +
      "Split it and open the parts one after another.",
  );
}

/** The message for a file that the server did not translate, with advice. error: a ServerError. */
export function refusalOf(file, error, languages) {
  const why = `${file.name} was not translated: ${error.message.replace(/[.!?]?$/, ".")}`;
  if (/not available as a target|^(this language|[\w-]+) is not supported$/.test(error.message)) {
    const pair = `${nameOf(languages.source)} and ${languageName(languages.target)}`;
    return `${why} Choose languages other than ${pair}, and open it again.`;
  }
  if ([408, 413, 504].includes(error.status)) return `${why} Split it into smaller files.`;
  if (error.status === 400 || error.status === 422) {
    return `${why} Fix it in the program that created it, and open it again.`;
  }
  return `${why} Open it again. If that does not help, contact the operator of this server.`;
}

function nameOf(source) {
  return source === "auto" ? "the detected one" : languageName(source);
}

function suffixesOf(facts) {
  return [...new Set([...TEXT_SUFFIXES, ...facts.file_suffixes])];
}

function suffixOf(name) {
  return /\.[^.]+$/.exec(name.toLowerCase())?.[0] ?? "";
}

async function documentOf(file) {
  return { copy: new File([await contentOf(file)], file.name, { type: file.type }) };
}

async function contentOf(file) {
  try {
    return await file.arrayBuffer();
  } catch {
    throw new FileRefused(
      `${file.name} could not be read: it is a folder, or it has been changed or deleted. Open it again.`,
    );
  }
}

/** The text of a file's bytes, with line feeds only, as in a text area; null if the bytes are not text in UTF-8. */
function utf8(content) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content);
    return text.includes("\0") ? null : text.replace(/\r\n?/g, "\n");
  } catch {
    return null;
  }
}

/**
 * Accept dropped and opened files. onFile(file): called with a file. onRefuse(message): called for several files.
 *
 * veil: the element that covers the page while a file is dragged over it. input: the file input. button: opens the
 * dialogue of `input`.
 */
export function takeFiles({ veil, input, button }, onFile, onRefuse) {
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
    const [file, other] = event.dataTransfer.files;
    if (other) onRefuse("This page translates one file at a time. Drop a single file.");
    else if (file) onFile(file);
  });
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const [file] = input.files;
    if (file) onFile(file);
    input.value = ""; // so that the same file can be opened again
  });
}
