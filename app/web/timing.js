// What a translation took: the server's phases as a bar and as figures, and what the browser saw.

const NAMES = {
  tokenise: "Split and tokenise",
  queue: "Wait in the queue",
  encode: "Encode",
  decode: "Decode",
  detokenise: "Join",
};

const whole = new Intl.NumberFormat("en");

/** Milliseconds for people. */
export function duration(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** result: as of LatestRequest. parts: {bar, figures, total}, elements. */
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
    ["First words here", duration(firstMs)],
    ["All here", duration(totalMs)],
    ["Sentences", whole.format(sentences)],
    ["Subwords read, written", `${whole.format(read)}, ${whole.format(written)}`],
  ];
  figures.replaceChildren(...lines.flatMap(([name, value, phase]) => figureOf(name, value, phase)));
}

function figureOf(name, value, phase) {
  const group = document.createElement("div");
  const term = document.createElement("dt");
  if (phase) term.className = `phase ${phase}`;
  term.textContent = name;
  const said = document.createElement("dd");
  said.textContent = value;
  group.append(term, said);
  return [group];
}
