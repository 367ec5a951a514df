// The server's models. The first one that serves a language pair translates it.

export class Models {
  /** list: the models of GET /v1/models. */
  constructor(list = []) {
    this.list = list;
  }

  get areKnown() {
    return this.list.length > 0;
  }

  get pairs() {
    return this.list.flatMap((model) => model.language_pairs);
  }

  /** Name, version and precision of each model. */
  get label() {
    return this.list.map((model) => `${model.name} ${model.version} · ${model.precision}`).join(", ");
  }

  /** Whether every model that may translate the chosen languages returns an alignment. */
  alignAll({ source, target, isDetecting }) {
    const fits = (pair) => pair.target === target && (isDetecting || pair.source === source);
    const fitting = this.list.filter((model) => model.language_pairs.some(fits));
    return fitting.length > 0 && fitting.every((model) => model.alignment);
  }
}
