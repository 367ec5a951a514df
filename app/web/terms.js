// Parses a typed glossary. Each line has a term, a separator and a translation. The separator is one or several tabs
// or, in a line without a tab, the first "=". In a line with a tab, the term may contain "=".

/** Returns {terms, wrongLines}: a map from term to translation, and the numbers of the invalid lines. */
export function parseTerms(text) {
  const terms = Object.create(null); // no prototype, so that a term may have any name
  const wrongLines = [];
  text.split(/\r?\n/).forEach((line, index) => {
    if (line.trim() === "") return;
    const entry = entryOf(line);
    if (entry) terms[entry[0]] = entry[1];
    else wrongLines.push(index + 1);
  });
  return { terms, wrongLines };
}

/** The lines with terms and translations exchanged. Invalid lines are kept. */
export function swappedTerms(text) {
  return text.replace(/[^\r\n]+/g, (line) => {
    const [term, translation] = entryOf(line) ?? [];
    if (term === undefined) return line;
    return `${translation}${`${term}${translation}`.includes("=") ? "\t" : " = "}${term}`;
  });
}

/** The term and the translation of a line; null if it is invalid. Neither may begin or end with "=". */
function entryOf(line) {
  const sides = line.includes("\t") ? columnsOf(line) : halvesOf(line);
  return sides.length === 2 && sides.every((side) => !/^$|^=|=$/.test(side)) ? sides : null;
}

/** The columns between tabs, without those that are empty or only "=". */
function columnsOf(line) {
  const columns = line.split("\t").map((side) => side.trim());
  return columns.filter((side) => side !== "" && side !== "=");
}

/** What is before and after the first "=". */
function halvesOf(line) {
  const [first, ...others] = line.split("=");
  return [first, others.join("=")].map((side) => side.trim());
}
