// Settings of sampling and looks, which this browser keeps, and what the server says about itself.
import { key, readMetrics, readModels, readProperties, setKey } from "./answer.js";
import { make } from "./markdown.js";

const byId = (id) => document.getElementById(id);
const dialog = byId("settings");
const fields = [...dialog.querySelectorAll(".grid input")];
const system = dialog.querySelector("[name=system]");
const jsonFields = ["schema", "tools"].map((name) => dialog.querySelector(`[name=${name}]`));
const KEY = "kakeya.settings";

let settings = {}; // {theme, drafts, schema and tools as texts of JSON, and each field that is set}
try {
  settings = JSON.parse(localStorage.getItem(KEY)) ?? {};
} catch {
  // Somebody else's.
}

function save() {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // No room: they hold until the page is left.
  }
}

// The fields of a request that are not left to the server.
export function sampling() {
  const set = fields.filter((field) => typeof settings[field.name] === "number");
  return Object.fromEntries(set.map((field) => [field.name, settings[field.name]]));
}

// The form of answers and the tools that they may call, as far as they are set.
export function forms() {
  const form = {};
  if (settings.schema) {
    form.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(settings.schema) } };
  }
  if (settings.tools) form.tools = JSON.parse(settings.tools);
  return form;
}

// Keeps a field's text if it is JSON of the kind that is wanted; the field says so if it is not.
function keepJson(field) {
  const text = field.value.trim();
  let problem = "";
  try {
    const value = text ? JSON.parse(text) : null;
    const wanted = field.name === "tools" ? Array.isArray(value) : !Array.isArray(value) && typeof value === "object";
    if (text && !wanted) problem = field.name === "tools" ? "Expected an array of tools" : "Expected an object";
  } catch (error) {
    problem = error.message;
  }
  field.setCustomValidity(problem);
  if (problem) return field.reportValidity();
  if (text) settings[field.name] = text;
  else delete settings[field.name];
  save();
}

// True if answers show which of their text was drafted.
export function showsDrafts() {
  return settings.drafts === true;
}

export function setShowsDrafts(shows) {
  settings.drafts = shows;
  save();
}

let conversation = null; // whose system prompt is shown

export function openSettings(of) {
  conversation = of;
  system.value = of.system;
  byId("key").value = key();
  for (const field of [...fields, ...jsonFields]) field.value = settings[field.name] ?? "";
  dialog.showModal();
}

function showTheme() {
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
}

// onSystem is called with a conversation whose system prompt has changed.
export function setUpSettings(onSystem) {
  for (const field of fields) {
    field.addEventListener("input", () => {
      if (field.value !== "" && field.checkValidity()) settings[field.name] = field.valueAsNumber;
      else delete settings[field.name];
      save();
    });
  }
  for (const field of jsonFields) field.addEventListener("change", () => keepJson(field));
  system.addEventListener("change", () => {
    conversation.system = system.value;
    onSystem(conversation);
  });
  byId("key").addEventListener("change", () => setKey(byId("key").value.trim()));
  byId("reset").addEventListener("click", () => {
    for (const field of fields) {
      field.value = "";
      delete settings[field.name];
    }
    save();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  byId("theme").addEventListener("click", () => {
    const dark = settings.theme ? settings.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    settings.theme = dark ? "light" : "dark";
    showTheme();
    save();
  });
  showTheme();
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const value = bytes / 1024 ** power;
  return `${value.toFixed(power > 0 && value < 100 ? 1 : 0)} ${units[power]}`;
}

const CLASS_NAMES = {
  weights: "Weights",
  kv_sliding: "KV cache, sliding",
  kv_full: "KV cache, full",
  drafter: "Drafter",
  codes: "Codes of evicted rows",
  activations: "Activations",
  logits: "Logits",
  prompt_cache: "Prompt cache",
  grammars: "Grammars",
};

// Memory by class of the ledger, and drafts, as of now.
export async function showServer() {
  let metrics = null;
  try {
    metrics = await readMetrics();
  } catch {
    return;
  }
  const total = metrics.classes.reduce((sum, [, bytes]) => sum + bytes, 0);
  const legend = metrics.classes.map(([name, bytes]) => [name, CLASS_NAMES[name] ?? name, bytes]);
  byId("memory-total").textContent = bytesText(total);
  byId("memory-bar").setAttribute("aria-label", legend.map(([, label, bytes]) => `${label}: ${bytesText(bytes)}`).join(", "));
  byId("memory-bar").replaceChildren(...legend.map(([name, label, bytes]) => {
    const part = make("span", { className: `of-${name}`, title: `${label}: ${bytesText(bytes)}` });
    part.style.flexGrow = bytes / total;
    return part;
  }));
  byId("memory-legend").replaceChildren(...legend.map(([name, label, bytes]) =>
    make("li", {}, make("i", { className: `of-${name}` }), make("span", {}, label), make("b", {}, bytesText(bytes)))));
  const { drafted, accepted } = metrics;
  byId("drafts").textContent = drafted > 0
    ? `Drafts accepted: ${Math.round((100 * accepted) / drafted)} %, ${accepted} of ${drafted}` : "";
  byId("server").hidden = false;
}

// Shows what the server says about itself and a model, the default one if it does not have this one;
// returns the model's name. Throws if the server is not there.
export async function setUpServer(wanted) {
  const models = await readModels();
  const model = models.includes(wanted) ? wanted : models[0];
  const properties = await readProperties(model);
  for (const [name, value] of Object.entries(properties.default_sampling)) {
    const field = fields.find((one) => one.name === name);
    if (field) field.placeholder = String(Math.round(value * 1000) / 1000);
  }
  byId("model").replaceChildren(...models.map((name) => make("option", { selected: name === model }, name)));
  byId("model").disabled = models.length < 2;
  byId("about").textContent = `${properties.model} on ${properties.backend}, ${properties.threads} threads, ` +
    `context ${properties.context.toLocaleString("en")} tokens.`;
  showServer();
  return model;
}
