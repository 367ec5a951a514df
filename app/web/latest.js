// One translation at a time: what is superseded is cancelled at the server, and never shown.

import { ServerError, stream } from "./client.js";
import { Draft } from "./spans.js";

const PAUSE_MS = 250;

export class LatestRequest {
  /**
   * on: {draft(text), progress(numDone, numSegments), done(request, result), problem(error)}.
   * request: {body, sourceText}. result: {body, phases, firstMs, totalMs}, in milliseconds since it was asked.
   */
  constructor(on) {
    this.on = on;
    this.number = 0;
    this.controller = new AbortController();
    this.timer = 0;
  }

  /** Whatever is asked or about to be is void. Returns the number of what comes next. */
  supersede() {
    clearTimeout(this.timer);
    this.controller.abort();
    this.controller = new AbortController();
    return ++this.number;
  }

  /** Ask once nothing was typed for a moment. */
  soon(request) {
    const number = this.supersede();
    this.timer = setTimeout(() => this.#ask(request, number), PAUSE_MS);
  }

  /** Ask at once. */
  now(request) {
    return this.#ask(request, this.supersede());
  }

  async #ask(request, number) {
    const { signal } = this.controller;
    const isCurrent = () => number === this.number;
    const clock = { started: performance.now(), firstMs: null };
    try {
      const found = await this.#found(request, { signal, isCurrent, clock });
      const totalMs = performance.now() - clock.started;
      if (isCurrent()) this.on.done(request, { ...found, firstMs: clock.firstMs ?? totalMs, totalMs });
    } catch (error) {
      if (!isCurrent() || error.name === "AbortError") return;
      if (!(error instanceof ServerError)) throw error;
      this.on.problem(error);
    }
  }

  /** The answer, with all weights of its alignment, or else the alignment, where it is not too long to tell them. */
  async #found(request, context) {
    try {
      return await this.#streamed(request, context);
    } catch (error) {
      const field = ["attention", "alignment"].find((name) => request.body[name]);
      if (error.code !== "payload_too_large" || !field) throw error;
      const { [field]: _, ...body } = request.body;
      return this.#found({ ...request, body }, context);
    }
  }

  async #streamed({ body, sourceText }, { signal, isCurrent, clock }) {
    let draft = null;
    let done = null;
    for await (const { event, data, phases } of stream("v1/translate/stream", body, signal)) {
      if (!isCurrent()) throw new DOMException("superseded", "AbortError");
      if (event === "done") done = { body: data, phases }; // read on to the end: leaving would look like cancelling
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
    throw new ServerError("The connection to the server broke off.", { retryAfterS: 1 });
  }
}
