// Sends one translation request at a time. A superseded request is cancelled on the server and never shown.

import { ServerError, stream } from "./client.js";
import { Draft } from "./spans.js";

// Pause in typing before a request. If shorter, more requests are cancelled. If longer, the translation is delayed.
const PAUSE_MS = 250;

export class LatestRequest {
  /**
   * on: the functions {draft(text), progress(numDone, numSegments), done(request, result), problem(error)}.
   * request: {body, sourceText}. result: {body, phases, firstMs, totalMs}.
   * firstMs, totalMs: milliseconds from the request to the first words and to the end.
   */
  constructor(on) {
    this.on = on;
    this.number = 0;
    this.controller = new AbortController();
    this.timer = 0;
  }

  /** Cancel the current and the scheduled request. Returns the number of the next request. */
  supersede() {
    clearTimeout(this.timer);
    this.controller.abort();
    this.controller = new AbortController();
    return ++this.number;
  }

  /** Send the request after a pause in typing. */
  soon(request) {
    const number = this.supersede();
    this.timer = setTimeout(() => this.#send(request, number), PAUSE_MS);
  }

  /** Send the request immediately. */
  now(request) {
    return this.#send(request, this.supersede());
  }

  async #send(request, number) {
    const { signal } = this.controller;
    const isCurrent = () => number === this.number;
    const clock = { started: performance.now(), firstMs: null };
    try {
      const found = await this.#translate(request, { signal, isCurrent, clock });
      const totalMs = performance.now() - clock.started;
      if (isCurrent()) this.on.done(request, { ...found, firstMs: clock.firstMs ?? totalMs, totalMs });
    } catch (error) {
      if (!isCurrent() || error.name === "AbortError") return;
      if (!(error instanceof ServerError)) throw error;
      this.on.problem(error);
    }
  }

  /**
   * Send the request. If `attention` makes the response too large, send the request again without it. If that response
   * would be too large as well, send the request without `alignment`, too.
   */
  async #translate(request, context) {
    try {
      return await this.#streamed(request, context);
    } catch (error) {
      const field = ["attention", "alignment"].find((name) => request.body[name]);
      // With `attention`, an error of another field is about the request itself, such as too many sentences.
      const isOfRequest = field === "attention" && error.field !== field;
      if (error.code !== "payload_too_large" || !field || isOfRequest) throw error;
      const { [field]: _, ...body } = request.body;
      return this.#translate({ ...request, body }, context);
    }
  }

  async #streamed({ body, sourceText }, { signal, isCurrent, clock }) {
    let draft = null;
    let done = null;
    for await (const { event, data, phases } of stream("v1/translate/stream", body, signal)) {
      if (!isCurrent()) throw new DOMException("superseded", "AbortError");
      // Read to the end: the server would log an early close as a cancellation.
      if (event === "done") done = { body: data, phases };
      if (done) continue;
      if (event === "start") {
        draft = new Draft(sourceText, data.texts[0]?.segments ?? []);
        continue;
      }
      clock.firstMs ??= performance.now() - clock.started;
      if (event === "delta") draft.append(data.segment, data.text);
      else if (event === "replace" || event === "segment") draft.replace(data.segment, data.text);
      if (event === "segment") this.on.progress(data.num_done, data.num_segments);
      this.on.draft(draft.text);
    }
    if (done) return done;
    throw new ServerError("The connection to the server was lost.", { retryAfterS: 1 });
  }
}
