// A glossary as it is typed: one term a line, then "=" or a tab, then its translation.

const LINE = /^\s*([^=\t]*[^=\t\s])\s*(?:=|\t)\s*(\S.*?)\s*$/;

/** {terms, wrongLines}: an object from term to translation, and the numbers of the lines that hold neither. */
export function parseTerms(text) {
  const terms = Object.create(null); // a term may have any name
  const wrongLines = [];
  text.split(/\r?\n/).forEach((line, index) => {
    if (line.trim() === "") return;
    const found = LINE.exec(line);
    if (found) terms[found[1]] = found[2];
    else wrongLines.push(index + 1);
  });
  return { terms, wrongLines };
}

/** The same lines with term and translation exchanged; lines that are not understood stay as they are. */
export function swappedTerms(text) {
  return text.replace(/[^\r\n]+/g, (line) => line.replace(LINE, (_, term, translation) => `${translation} = ${term}`));
}
