// Parses a typed glossary. Each line has a term, then a tab or, in a line without a tab, the first "=", then the
// translation. With a tab, the term may contain "=".

const WITH_TAB = /^([^\t]+)\t([^\t]+)$/;
const WITH_EQUALS = /^([^=\t]+)=([^\t]+)$/;
const WITH_BOTH = /\s*(?:=\s*\t|\t\s*=)\s*/; // "=" in a column of its own

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
  const parts = line.trim().replace(WITH_BOTH, "\t");
  const entry = (WITH_TAB.exec(parts) ?? WITH_EQUALS.exec(parts))?.slice(1).map((side) => side.trim());
  return entry?.every((side) => !/^$|^=|=$/.test(side)) ? entry : null;
}
