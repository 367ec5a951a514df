// The HTTP client of the page: JSON requests, files, event streams, and errors with messages for the user.

import { languageName } from "./languages.js";

export class ServerError extends Error {
  /**
   * status: of HTTP; 0 without one. code, field: the error code of the native API and the field of the request that it
   * concerns; "" without one. retryAfterS: seconds until a retry; null for no retry.
   */
  constructor(message, { status = 0, code = "", field = "", retryAfterS = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
    this.retryAfterS = retryAfterS;
  }
}

// Seconds until a retry after a failed connection, or after an error that may pass but names no time.
const NETWORK_RETRY_S = 5;
// The statuses of errors that may pass. A proxy sends 502 while the server restarts.
const PASSING = new Set([429, 502, 503]);

function headers() {
  return { "Content-Type": "application/json", ...authorization() };
}

function authorization() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

let key = ""; // the API key of this tab; "" without one
try {
  key = sessionStorage.getItem("key") ?? "";
} catch {
  // Without access to storage, the key is kept until the page is closed.
}

/** The API key of this tab; "" without one. */
export function storedKey() {
  return key;
}

/** Keep an API key until the tab is closed; "" removes it. Returns false for a key that no header can carry. */
export function keepKey(newKey) {
  try {
    new Headers({ Authorization: newKey });
  } catch {
    return false;
  }
  key = newKey;
  try {
    sessionStorage.setItem("key", key);
  } catch {
    // no access to storage
  }
  return true;
}

/** Send a GET request; returns the parsed body. needsKey: whether to send the API key. Throws the errors of `post`. */
export async function get(path, { needsKey = true, signal } = {}) {
  return read(await send(path, { headers: needsKey ? authorization() : {}, signal }));
}

/** Send a POST request and return the parsed body. Throws ServerError, and AbortError if `signal` is aborted. */
export async function post(path, body, signal) {
  const response = await send(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  return read(response);
}

/** Translate a file in its own format; returns a Blob. Throws the errors of `post`. */
export async function translateFile(file, { source, target }, signal) {
  const form = new FormData();
  form.append("source", source);
  form.append("target", target);
  form.append("file", file);
  const options = { headers: authorization(), signal };
  const { translatedFileUrl } = await read(await send("translate_file", { ...options, method: "POST", body: form }));
  // Use only the file's name, because behind a proxy the server may have another address.
  const name = translatedFileUrl.split("/").pop();
  return received((await send(`download_file/${encodeURIComponent(name)}`, options)).blob());
}

/** Parse the JSON of a response. A proxy may have sent another page instead. */
async function read(response) {
  const text = await received(response.text());
  try {
    return JSON.parse(text);
  } catch {
    throw new ServerError("The response is not from a Transduce server.");
  }
}

/** Await a part of a response's body. Throws ServerError if the connection is lost, and AbortError. */
async function received(part) {
  try {
    return await part;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection to the server was lost.", { retryAfterS: NETWORK_RETRY_S });
  }
}

/**
 * Yield the events of a streamed translation as {event, data, phases}. Only the last one, `done`, has phases.
 * Throws ServerError, also for an `error` event, and AbortError.
 */
export async function* stream(path, body, signal) {
  const response = await send(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  for await (const { event, data, comment } of eventsOf(response.body)) {
    const value = JSON.parse(data);
    if (event === "error") throw errorOf(0, value, null);
    yield { event, data: value, phases: phasesOf(comment.replace(/^server-timing /, "")) };
  }
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached.", { retryAfterS: NETWORK_RETRY_S });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw errorOf(response.status, body, response.headers.get("Retry-After"));
}

// The page's message for each error code.
const MESSAGES = {
  unauthorized: "This server requires an API key.",
  forbidden: "The API key is wrong.",
  request_timeout: "The request took too long to arrive at the server.",
  payload_too_large: "The request is too large.",
  overloaded: "The server is busy.",
  not_ready: "The server is not ready.",
  usage_unavailable: "The server cannot check the limits of this API key.",
  deadline_exceeded: "The translation took too long and was cancelled.",
  engine_failure: "The server failed to translate this text.",
  internal_error: "The server failed to translate this text.",
};
// Error codes for which the server's own message is shown, too.
const IS_DETAILED = new Set([
  "payload_too_large",
  "invalid_request",
  "source_too_long",
  "quota_exceeded",
]);

// The page's names of fields with which a message of the server may begin.
const FIELDS = { "text[0]": "The text", "glossary.terms": "The glossary" };

// The error of the file routes, with status 400, for a request without the required API key.
const NO_KEY = "Please contact the server operator to get an API key";

function errorOf(status, body, retryAfter) {
  if (body?.error === NO_KEY) return errorOf(401, { error: { code: "unauthorized" } }, null);
  // On the file routes an error is a string.
  if (typeof body?.error === "string") {
    const message = body.error.replace(/^Invalid request: (file: )?/, "");
    return new ServerError(message, { status, retryAfterS: retryOf(status, retryAfter) });
  }
  const { code = "", field = "", message = "", source, target } = body?.error ?? {};
  const general = `The server answered with an error (${status || code || "unknown"}).`;
  let words = MESSAGES[code] ?? (IS_DETAILED.has(code) ? "" : general);
  if (code === "unsupported_languages") words = unsupportedPair(source, target);
  return new ServerError([words, IS_DETAILED.has(code) ? detailOf(field, message) : ""].filter(Boolean).join(" "), {
    status,
    code,
    field,
    retryAfterS: retryOf(status, retryAfter, { isOfProxy: typeof code !== "string" || code === "" }),
  });
}

/** The server's message as a sentence, with the page's name of the field. */
function detailOf(field, message) {
  const name = message.startsWith(field) ? FIELDS[field] : undefined;
  const detail = name ? name + message.slice(field.length) : message;
  return detail && detail[0].toUpperCase() + detail.slice(1) + (/[.!?]$/.test(detail) ? "" : ".");
}

/** The message about languages that the server does not translate. source, target: set if the source is detected. */
function unsupportedPair(source, target) {
  const why = source
    ? `The text is in ${languageName(source)}, which is not translated into ${languageName(target)} here.`
    : "This pair is not translated here.";
  return `${why} Choose other languages. If that does not help, reload the page.`;
}

/** Seconds until a retry; null for no retry. A 504 of a proxy may pass; a 504 of the server concerns this request. */
function retryOf(status, retryAfter, { isOfProxy = false } = {}) {
  const mayPass = PASSING.has(status) || (isOfProxy && status === 504);
  return secondsOf(retryAfter) ?? (mayPass ? NETWORK_RETRY_S : null);
}

/** The seconds in a Retry-After, or until the date in it; null for neither. */
function secondsOf(retryAfter) {
  if (!retryAfter) return null;
  const number = Number(retryAfter);
  const seconds = Number.isNaN(number) ? Math.max(0, (Date.parse(retryAfter) - Date.now()) / 1000) : number;
  return Number.isFinite(seconds) ? seconds : null;
}

/** The phases of a Server-Timing value as [name, milliseconds], in its order. */
function phasesOf(timing) {
  return timing.split(",").flatMap((entry) => {
    const found = /^\s*([\w-]+)\s*;\s*dur=([\d.]+)/.exec(entry);
    return found ? [[found[1], Number(found[2])]] : [];
  });
}

/** Yield the events of a text/event-stream body, whose chunks may end anywhere, even within a character. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let fields = newFields();
  try {
    for (;;) {
      const { value, done } = await received(reader.read());
      if (done) return;
      rest += value;
      // A carriage return at the end may be the first half of a line ending.
      const held = rest.endsWith("\r") ? 1 : 0;
      const lines = rest.slice(0, rest.length - held).split(/\r\n|\n|\r/);
      rest = lines.pop() + rest.slice(rest.length - held);
      for (const line of lines) {
        if (line !== "") addLine(fields, line);
        else {
          if (fields.data.length) yield { ...fields, data: fields.data.join("\n") };
          fields = newFields();
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function newFields() {
  return { event: "message", data: [], comment: "" };
}

function addLine(fields, line) {
  const colon = line.indexOf(":");
  const name = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (name === "event") fields.event = value;
  else if (name === "data") fields.data.push(value);
  else if (name === "") fields.comment = value;
}
