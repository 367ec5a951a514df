// Requests from the page of the API: each form sends what stands in it to this server, and shows what comes back.
"use strict";

const MAX_SHOWN_CHARACTERS = 20000;

/** Put the served model's name, version and languages into the examples, where the server has them. */
async function fillIn() {
  const answer = await fetch("v1/models").catch(() => null);
  if (!answer?.ok) return;
  const [model] = (await answer.json()).models;
  const [pair] = model.language_pairs;
  for (const form of document.forms) {
    const { path, body } = form.elements;
    path.value = path.value.replace("{name}", model.name).replace("{number}", model.version);
    if (!body) continue;
    const words = { '"en"': JSON.stringify(pair.source), '"de"': JSON.stringify(pair.target) };
    body.value = body.value.replace(/"(en|de)"/g, (word) => words[word]);
  }
}

/** The request of a form. Throws SyntaxError where an upload's fields are not JSON. */
function requestOf(form) {
  const { body, file } = form.elements;
  const asked = { method: form.dataset.method, cache: "no-store" };
  if (!file) return body ? { ...asked, body: body.value, headers: { "Content-Type": "application/json" } } : asked;
  const fields = new FormData();
  for (const [name, value] of Object.entries(JSON.parse(body.value))) fields.append(name, value);
  if (file.files[0]) fields.append("file", file.files[0]);
  return { ...asked, body: fields };
}

async function send(form) {
  const [status, shown, link] = ["status", "answer", "save"].map((name) => form.querySelector(`.${name}`));
  const started = performance.now();
  status.textContent = "Sending…";
  shown.hidden = link.hidden = true;
  try {
    const answer = await fetch(form.elements.path.value.replace(/^\//, ""), requestOf(form));
    const type = answer.headers.get("Content-Type") ?? "";
    const tell = () => {
      status.textContent = `${answer.status} ${answer.statusText}, ${Math.round(performance.now() - started)} ms, ${type}`;
    };
    tell();
    if (type.startsWith("application/octet-stream")) offer(link, await answer.blob());
    else await show(shown, answer, type);
    tell();
  } catch (error) {
    status.textContent = `Not sent, or not answered: ${error.message}`;
  }
}

/** Text as it comes; JSON with its lines indented once it is whole. */
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
  return text.length <= MAX_SHOWN_CHARACTERS ? text : `${text.slice(0, MAX_SHOWN_CHARACTERS)}\n… and more`;
}

function offer(link, blob) {
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(blob);
  link.download = "answer";
  link.textContent = `Save the answer, ${blob.size} bytes`;
  link.hidden = false;
}

for (const form of document.forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}
fillIn();
