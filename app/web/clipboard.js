// Copies a translation to the clipboard.

// Time that the button shows that the text was copied.
const SHOWN_MS = 1500;

let reset = () => {}; // shows the button's name again

/**
 * Copy `text`, and show on the button whether it was copied. If it was not, the button shows what to do, until the next
 * click or input. box: the element that shows the text. announce(text): tells it to screen readers.
 */
export async function copyText(text, { box, button, announce }) {
  const isDone = await isCopied(text, box);
  const result = isDone ? "Copied" : "Not copied: select the translation and copy it";
  reset(); // an earlier timer would end this result too soon
  button.textContent = result;
  announce(result);
  const timer = isDone ? setTimeout(() => reset(), SHOWN_MS) : 0;
  const ends = new AbortController();
  reset = () => {
    clearTimeout(timer);
    ends.abort();
    button.textContent = "Copy";
  };
  if (isDone) return;
  for (const type of ["click", "input"]) {
    // The click that copies has passed the capturing phase, so it does not reset the button.
    document.addEventListener(type, () => reset(), { capture: true, signal: ends.signal });
  }
}

/** Copy a selection in `box` without its style, because the colours of the page fit no document. */
export function copyAsPlain(box) {
  box.addEventListener("copy", (event) => {
    event.clipboardData.setData("text/plain", document.getSelection().toString());
    event.preventDefault();
  });
}

async function isCopied(text, box) {
  if (!navigator.clipboard) return isCopiedByEvent(text, box);
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // such as without the user's permission
  }
}

/** Copy without navigator.clipboard, which exists only with HTTPS or on localhost. */
function isCopiedByEvent(text, box) {
  // The selection alone would be copied as HTML, with the colours of the page.
  const takePlain = (event) => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  };
  document.addEventListener("copy", takePlain);
  document.getSelection().selectAllChildren(box);
  const isDone = document.execCommand("copy");
  document.getSelection().removeAllRanges();
  document.removeEventListener("copy", takePlain);
  return isDone;
}
