// Shows an error message if a module of the page fails, or cannot be loaded, before the page has loaded.
"use strict";
{
  const tell = ({ target, filename }) => {
    if (target !== window && target.type !== "module") return; // such as a picture
    const own = new URL("assets/", document.baseURI).href;
    if (target === window && !filename.startsWith(own)) return; // such as a browser extension
    document.getElementById("problem").hidden = false;
    document.getElementById("problem-text").textContent = "The page could not be loaded. Reload it.";
  };
  addEventListener("error", tell, true); // the event of an element does not bubble
  addEventListener("load", () => removeEventListener("error", tell, true));
}
