// The server as the page asks it: JSON, one stream of events, and errors with words for people.

export class ServerError extends Error {
  /** retryAfterS: seconds, null where trying again is of no use. code: of the server, or "network". */
  constructor(message, { status = 0, code = "network", retryAfterS = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }
}

const NETWORK_RETRY_S = 5;

function headers() {
  return { "Content-Type": "application/json", ...authorization() };
}

function authorization() {
  const key = storedKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** The key of this tab, "" where there is none. */
export function storedKey() {
  try {
    return sessionStorage.getItem("key") ?? "";
  } catch {
    return "";
  }
}

/** Keep a key until the tab is closed; "" forgets it. */
export function keepKey(key) {
  if (key) sessionStorage.setItem("key", key);
  else sessionStorage.removeItem("key");
}

/** The body of a GET. Throws ServerError. */
export async function get(path) {
  return read(await ask(path, { headers: headers() }));
}

/** The body of a POST. Throws ServerError, and AbortError once `signal` is. */
export async function post(path, body, signal) {
  const answer = await ask(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  return read(answer);
}

/** A file translated in its own format, as a Blob. Throws as `post`. */
export async function translateFile(file, { source, target }, signal) {
  const form = new FormData();
  form.append("source", source);
  form.append("target", target);
  form.append("file", file);
  const asked = { headers: authorization(), signal };
  const { translatedFileUrl } = await read(await ask("translate_file", { ...asked, method: "POST", body: form }));
  // Only its name counts: behind a proxy the server may know itself by another address.
  const name = translatedFileUrl.split("/").pop();
  return (await ask(`download_file/${encodeURIComponent(name)}`, asked)).blob();
}

/** The JSON of an answer; something on the way may have sent another page in its place. */
async function read(answer) {
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("What came back is no answer of this server.");
  }
}

/**
 * The events of a streamed translation as {event, data, phases}; the last is `done`, and has phases.
 * Throws ServerError, also for an `error` among the events, and AbortError.
 */
export async function* stream(path, body, signal) {
  const answer = await ask(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  for await (const { event, data, comment } of eventsOf(answer.body)) {
    const value = JSON.parse(data);
    if (event === "error") throw errorOf(0, value, null);
    yield { event, data: value, phases: phasesOf(comment.replace(/^server-timing /, "")) };
  }
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached.", { retryAfterS: NETWORK_RETRY_S });
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw errorOf(answer.status, told, answer.headers.get("Retry-After"));
}

const WORDS = {
  unauthorized: "This server wants an API key.",
  forbidden: "This API key is not known here.",
  payload_too_large: "That is too much at once.",
  overloaded: "The server is busy.",
  not_ready: "The server is not ready.",
  deadline_exceeded: "The translation took too long and was given up.",
  engine_failure: "The server failed at this text.",
  internal_error: "The server failed at this text.",
};
// What is said by the server itself adds something to these.
const IS_DETAILED = new Set(["payload_too_large", "invalid_request", "unsupported_languages", "source_too_long"]);

function errorOf(status, told, retryAfter) {
  // The file routes tell an error as a sentence.
  if (typeof told?.error === "string") {
    const message = told.error.replace(/^Invalid request: (file: )?/, "");
    return new ServerError(message, { status, retryAfterS: secondsOf(retryAfter) });
  }
  const { code = "unknown", message = "" } = told?.error ?? {};
  const detail = message && message[0].toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
  const words = WORDS[code] ?? (IS_DETAILED.has(code) ? "" : `The server answered with an error (${status || code}).`);
  return new ServerError([words, IS_DETAILED.has(code) ? detail : ""].filter(Boolean).join(" "), {
    status,
    code,
    retryAfterS: secondsOf(retryAfter),
  });
}

function secondsOf(retryAfter) {
  const seconds = retryAfter === null ? NaN : Number(retryAfter);
  return Number.isFinite(seconds) ? seconds : null;
}

/** What Server-Timing says as [name, milliseconds], in the order of the work. */
function phasesOf(timing) {
  return timing.split(",").flatMap((entry) => {
    const found = /^\s*([\w-]+)\s*;\s*dur=([\d.]+)/.exec(entry);
    return found ? [[found[1], Number(found[2])]] : [];
  });
}

/** Events of a body in the format of text/event-stream, which may be cut anywhere, also within a character. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let fields = newFields();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      // A carriage return at the end may be the first half of a line's end.
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
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection to the server broke off.", { retryAfterS: NETWORK_RETRY_S });
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
