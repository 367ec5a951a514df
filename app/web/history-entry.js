// Keeps the selected languages and the beam width in the page's entry of the browser's history. The browser keeps the
// text there: after Back the page translates it as before. After a reload, some browsers do not restore the text.

/** What the entry had when the page was loaded: {source, target, beam}; {} for nothing. */
export const KEPT = history.state ?? {};

/** Keep {source, target, beam} instead of what the entry has. */
export function keepChoices(choices) {
  const kept = history.state ?? {};
  if (Object.keys(choices).every((name) => choices[name] === kept[name])) return;
  try {
    history.replaceState(choices, "");
  } catch {
    // Safari allows 100 changes in 30 s.
  }
}
