// Parses a typed glossary. Each line has a term, then "=" or a tab, then the translation.

const LINE = /^\s*([^=\t]*[^=\t\s])\s*(?:=|\t)\s*(\S.*?)\s*$/;

/** Returns {terms, wrongLines}: a map from term to translation, and the numbers of the invalid lines. */
export function parseTerms(text) {
  const terms = Object.create(null); // no prototype, so that a term may have any name
  const wrongLines = [];
  text.split(/\r?\n/).forEach((line, index) => {
    if (line.trim() === "") return;
    const found = LINE.exec(line);
    if (found) terms[found[1]] = found[2];
    else wrongLines.push(index + 1);
  });
  return { terms, wrongLines };
}

/** The lines with terms and translations exchanged. Invalid lines are kept. */
export function swappedTerms(text) {
  return text.replace(/[^\r\n]+/g, (line) => line.replace(LINE, (_, term, translation) => `${translation} = ${term}`));
}
