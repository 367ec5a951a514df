// The attention of one sentence as a table with a row for each translated word and a column for each word of the text.
// The last column has the rest of a row's attention, which is on no word. If the response has only the largest weights,
// the rest also has the attention on the other words. A row is empty if the word has no subword of its own.

/** Draw the table into `box`. onPoint(row | null): called with the row under the pointer. */
export function drawHeatmap(box, { answer, alignment, languages, onPoint }) {
  const table = element("table", "map");
  table.append(headOf(answer, alignment, languages.source));
  const body = element("tbody");
  alignment.rows.forEach((word, row) => {
    body.append(rowOf(answer, alignment, { word, row, language: languages.target }));
  });
  table.append(body);
  body.addEventListener("pointerover", (event) => onPoint(rowNumber(event.target)));
  body.addEventListener("pointerleave", () => onPoint(null));
  box.replaceChildren(table);
}

/** Highlight one row, and no other; null for none. */
export function highlightRow(box, row) {
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
    const cell = columnHead(answer.sourceText.slice(word.start, word.end));
    cell.lang = language;
    line.append(cell);
  }
  const rest = columnHead("rest");
  rest.classList.add("rest");
  line.append(rest);
  const head = element("thead");
  head.append(line);
  return head;
}

function columnHead(text) {
  const cell = element("th", "column");
  cell.scope = "col";
  const label = element("span");
  label.textContent = text;
  label.dir = "auto";
  cell.append(label);
  return cell;
}

function rowOf(answer, { weights, rests }, { word, row, language }) {
  const line = element("tr");
  line.dataset.row = row;
  const name = element("th", "row");
  name.scope = "row";
  name.lang = language;
  name.dir = "auto";
  name.textContent = answer.text.slice(word.start, word.end);
  line.append(name);
  for (const weight of weights[row]) {
    const cell = percentOf(weight);
    // There are ten classes. The text colour changes with the background, so that it is readable on each.
    if (cell.textContent) cell.classList.add("filled", `heat-${Math.min(9, Math.floor(weight * 10))}`);
    line.append(cell);
  }
  const rest = percentOf(rests[row]);
  rest.classList.add("rest");
  line.append(rest);
  return line;
}

/** A cell with a percentage; empty below half a percent. */
function percentOf(weight) {
  const cell = element("td");
  const percent = Math.round(weight * 100);
  if (percent > 0) cell.textContent = percent;
  return cell;
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
