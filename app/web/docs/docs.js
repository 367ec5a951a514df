// The forms of the API page: each sends its request to this server and shows the response.
"use strict";

// The maximum number of characters of a response that the page shows. If larger, the browser takes longer to show it.
const MAX_SHOWN_CHARACTERS = 20000;
// The AbortController of each form's latest request.
const controllers = new Map();

/** Insert the served model's name, version and languages into the examples. */
async function fillIn() {
  const answer = await fetch("v1/models").catch(() => null);
  if (!answer?.ok) return;
  const [model] = (await answer.json()).models;
  const [pair] = model.language_pairs;
  for (const form of document.forms) {
    const { path, body } = form.elements;
    path.value = path.value.replace("models/{name}", `models/${model.name}`).replace("{number}", model.version);
    if (!body) continue;
    const words = { '"en"': JSON.stringify(pair.source), '"de"': JSON.stringify(pair.target) };
    body.value = body.value.replace(/"(en|de)"/g, (word) => words[word]);
  }
}

/** The fetch options of a form. Throws SyntaxError if an upload's fields are not JSON. */
function requestOf(form) {
  const { body, file } = form.elements;
  const options = { method: form.dataset.method, cache: "no-store" };
  if (!file) return body ? { ...options, body: body.value, headers: { "Content-Type": "application/json" } } : options;
  const fields = new FormData();
  for (const [name, value] of Object.entries(JSON.parse(body.value))) fields.append(name, value);
  if (file.files[0]) fields.append("file", file.files[0]);
  return { ...options, body: fields };
}

/** Send a form's request and show the response. Cancels the form's previous request. */
async function send(form) {
  controllers.get(form)?.abort();
  const controller = new AbortController();
  const { signal } = controller;
  controllers.set(form, controller);
  const [status, shown, link] = ["status", "answer", "save"].map((name) => form.querySelector(`.${name}`));
  const started = performance.now();
  status.textContent = "Sending…";
  shown.hidden = link.hidden = true;
  try {
    const answer = await fetch(form.elements.path.value.replace(/^\//, ""), { ...requestOf(form), signal });
    const type = answer.headers.get("Content-Type") ?? "";
    const showStatus = () => {
      const ms = Math.round(performance.now() - started);
      status.textContent = `${answer.status} ${answer.statusText}, ${ms} ms, ${type}`;
    };
    showStatus();
    if (type.startsWith("application/octet-stream")) offer(link, await answer.blob());
    else await show(shown, answer, type);
    showStatus();
  } catch (error) {
    if (signal.aborted) return; // the next request shows its own response
    status.textContent = `The request failed: ${error.message}`;
  }
}

/** Show a response as it arrives; complete JSON is indented. */
async function show(box, answer, type) {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  box.textContent = "";
  box.hidden = false;
  for (;;) {
    const { value, done } = (await reader?.read()) ?? { done: true };
    if (done) break;
    text += value;
    box.textContent = cut(text);
  }
  if (type.startsWith("application/json") && text) box.textContent = cut(JSON.stringify(JSON.parse(text), null, 2));
}

function cut(text) {
  return text.length <= MAX_SHOWN_CHARACTERS ? text : `${text.slice(0, MAX_SHOWN_CHARACTERS)}\n… (shortened)`;
}

function offer(link, blob) {
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(blob);
  link.download = "answer";
  link.textContent = `Save the response, ${blob.size} bytes`;
  link.hidden = false;
}

for (const form of document.forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}
fillIn();
