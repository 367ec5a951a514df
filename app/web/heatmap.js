// The attention of one sentence as a table: its words down the side, the text's words along the top.

/** Draw into `box`. onPoint(row | null): the row that is pointed at. */
export function drawHeatmap(box, { answer, alignment, languages, onPoint }) {
  const table = element("table", "map");
  table.append(headOf(answer, alignment, languages.source));
  const body = element("tbody");
  alignment.rows.forEach((word, row) => body.append(rowOf(answer, alignment, { word, row, language: languages.target })));
  table.append(body);
  body.addEventListener("pointerover", (event) => onPoint(rowNumber(event.target)));
  body.addEventListener("pointerleave", () => onPoint(null));
  box.replaceChildren(table);
}

/** Set off one row, and no other; null: none. */
export function setOffRow(box, row) {
  for (const line of box.querySelectorAll("tbody tr")) {
    line.classList.toggle("marked", Number(line.dataset.row) === row);
  }
}

function headOf(answer, { columns }, language) {
  const line = element("tr");
  const corner = element("td", "corner");
  corner.setAttribute("aria-hidden", "true");
  line.append(corner);
  for (const word of columns) {
    const cell = element("th", "column");
    cell.scope = "col";
    cell.lang = language;
    const said = element("span");
    said.textContent = answer.sourceText.slice(word.start, word.end);
    said.dir = "auto";
    cell.append(said);
    line.append(cell);
  }
  const head = element("thead");
  head.append(line);
  return head;
}

function rowOf(answer, { weights }, { word, row, language }) {
  const line = element("tr");
  line.dataset.row = row;
  const name = element("th", "row");
  name.scope = "row";
  name.lang = language;
  name.dir = "auto";
  name.textContent = answer.text.slice(word.start, word.end);
  line.append(name);
  for (const weight of weights[row]) {
    const cell = element("td", weight > 0 ? "paid" : "");
    // A class of ten: the text's colour changes with the ground's, so that it can be read on all of them.
    if (weight > 0) {
      cell.classList.add(`heat-${Math.min(9, Math.floor(weight * 10))}`);
      cell.textContent = Math.round(weight * 100);
    }
    line.append(cell);
  }
  return line;
}

function rowNumber(target) {
  const line = target.closest("tr");
  return line ? Number(line.dataset.row) : null;
}

function element(name, className = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  return made;
}
