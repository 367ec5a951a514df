// The duration of a translation: the server's phases as a bar and as figures, and the times in the browser.

const NAMES = {
  load: "Load the model",
  tokenise: "Split and tokenise",
  queue: "Wait in the queue",
  encode: "Encode",
  decode: "Decode",
  detokenise: "Join",
};

const whole = new Intl.NumberFormat("en");

/** Format a duration in milliseconds. */
export function duration(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** Draw the times of a result of LatestRequest into {bar, figures, total}, three elements. */
export function drawTiming({ bar, figures, total }, { body, phases, firstMs, totalMs }) {
  total.textContent = duration(totalMs);
  const sum = phases.reduce((all, [, ms]) => all + ms, 0);
  bar.hidden = sum === 0;
  bar.replaceChildren(
    ...phases.map(([name, ms]) => {
      const part = document.createElement("span");
      part.className = `phase ${name}`;
      part.style.setProperty("flex-grow", ms / sum || 0);
      return part;
    }),
  );
  const { source_tokens: read, target_tokens: written, sentences } = body.usage;
  const lines = [
    ...phases.map(([name, ms]) => [NAMES[name] ?? name, duration(ms), name]),
    ["First words received", duration(firstMs)],
    ["All received", duration(totalMs)],
    ["Sentences", whole.format(sentences)],
    ["Subwords in, out", `${whole.format(read)}, ${whole.format(written)}`],
  ];
  figures.replaceChildren(...lines.map(([name, value, phase]) => figureOf(name, value, phase)));
}

function figureOf(name, value, phase) {
  const group = document.createElement("div");
  const term = document.createElement("dt");
  if (phase) term.className = `phase ${phase}`;
  term.textContent = name;
  const figure = document.createElement("dd");
  figure.textContent = value;
  group.append(term, figure);
  return group;
}
