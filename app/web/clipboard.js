// Copies a translation to the clipboard.

// Time that the button shows the result.
const SHOWN_MS = 1500;

/** Copy `text`, and show on the button whether it was copied. box: the element that shows the text. */
export async function copyText(text, { box, button }) {
  button.textContent = (await isCopied(text, box)) ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = "Copy"), SHOWN_MS);
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
