// The server's models. The first model of a language pair translates it. A pivoted pair has a model into the pivot
// language and one out of it, which may be the same.

export class Models {
  /** list, pivoted: the models and the pivoted pairs of GET /v1/models. */
  constructor(list = [], pivoted = []) {
    this.list = list;
    this.pivoted = pivoted;
  }

  get areKnown() {
    return this.list.length > 0;
  }

  get pairs() {
    return [...this.list.flatMap((model) => model.language_pairs), ...this.pivoted];
  }

  /** Name, version and precision of each model. */
  get label() {
    return this.list.map((model) => `${model.name} ${model.version} · ${model.precision}`).join(", ");
  }

  /** Whether every model that may translate the chosen languages returns an alignment. */
  alignAll({ source, target, isDetecting }) {
    const fits = (pair) => pair.target === target && (isDetecting || pair.source === source);
    const bySource = new Map();
    for (const model of this.list) {
      for (const pair of model.language_pairs.filter(fits)) {
        if (!bySource.has(pair.source)) bySource.set(pair.source, model);
      }
    }
    const halves = this.pivoted.filter(fits).flatMap((pair) => pair.models);
    const used = [...bySource.values(), ...this.list.filter((model) => halves.includes(model.name))];
    return used.length > 0 && used.every((model) => model.alignment);
  }
}
