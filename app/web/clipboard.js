// A translation to the clipboard.

const SHOWN_MS = 1500;

/** Copy what stands in a box, which is `text`; the button says so. */
export async function copyText(text, { box, button }) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    // Outside of HTTPS and this machine there is only the old way.
    document.getSelection().selectAllChildren(box);
    document.execCommand("copy");
    document.getSelection().removeAllRanges();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), SHOWN_MS);
}
