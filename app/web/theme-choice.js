// The theme selector; theme.js applies the stored choice before the first paint.

/** Connect a select with the options "system", "light" and "dark". */
export function chooseTheme(select) {
  select.value = document.documentElement.dataset.theme;
  select.addEventListener("change", () => {
    document.documentElement.dataset.theme = select.value;
    try {
      localStorage.setItem("theme", select.value);
    } catch {
      // Without access to storage the choice lasts as long as the page.
    }
  });
}
