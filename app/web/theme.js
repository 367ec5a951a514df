// Before the first paint: the colours that were chosen here. The stylesheet has both.
"use strict";
try {
  document.documentElement.dataset.theme = localStorage.getItem("theme") || "system";
} catch {
  document.documentElement.dataset.theme = "system"; // storage is forbidden: the choice lasts as long as the page
}
