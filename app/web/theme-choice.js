// The colours as they are chosen here; theme.js applies the choice before the first paint.

/** A select of "system", "light" and "dark". */
export function chooseTheme(select) {
  select.value = document.documentElement.dataset.theme;
  select.addEventListener("change", () => {
    document.documentElement.dataset.theme = select.value;
    try {
      localStorage.setItem("theme", select.value);
    } catch {
      // Storage is forbidden: the choice lasts as long as the page.
    }
  });
}
