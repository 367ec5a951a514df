// Copies a translation to the clipboard.

// Time that the button shows "Copied".
const SHOWN_MS = 1500;

/** Copy `text`, and confirm it on the button. box: the element that shows the text. */
export async function copyText(text, { box, button }) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    // navigator.clipboard exists only with HTTPS or on localhost.
    document.getSelection().selectAllChildren(box);
    document.execCommand("copy");
    document.getSelection().removeAllRanges();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), SHOWN_MS);
}
