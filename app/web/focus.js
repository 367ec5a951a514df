// Keeps the keyboard focus on the page when the element that has it is hidden.

/** If the element with the focus is hidden, `next` gets the focus, which would else go to the start of the page. */
export function keepFocus(next) {
  let isLost = false;
  document.addEventListener("focusout", ({ target }) => {
    if (target.closest("[hidden]")) isLost = true; // Chromium takes the focus from a hidden element at once
  });
  const observer = new MutationObserver(() => {
    const focused = document.activeElement ?? document.body;
    if (focused.closest("[hidden]") || (isLost && focused === document.body)) next.focus();
    isLost = false;
  });
  observer.observe(document.body, { attributeFilter: ["hidden"], subtree: true });
}
