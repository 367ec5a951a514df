// Applies the stored theme before the first paint. The stylesheet has both themes.
"use strict";
try {
  document.documentElement.dataset.theme = localStorage.getItem("theme") || "system";
} catch {
  document.documentElement.dataset.theme = "system"; // the page has no access to storage
}
