// The page: shows the conversation, asks for answers, and keeps what was said.
import { streamAnswer } from "./answer.js";
import * as kept from "./conversations.js";
import { jsonNodes, make, markdown, showNodes } from "./markdown.js";
import { forms, openSettings, sampling, setShowsDrafts, setUpServer, setUpSettings, showsDrafts, showServer } from "./settings.js";

const byId = (id) => document.getElementById(id);
const scroll = byId("scroll");
const question = byId("question");

let conversations = kept.loadConversations();
let current = conversations[0] ?? kept.newConversation("");
let answering = null; // {controller, conversation, index} while an answer comes
let editing = null; // index of the message that is being edited
let model = "";

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

function button(name, label, onclick) {
  const element = make("button", { type: "button", className: "icon", title: label, onclick }, icon(name));
  element.setAttribute("aria-label", label);
  return element;
}

function say(text) {
  byId("status").textContent = text;
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

function save(conversation) {
  try {
    kept.saveConversation(conversation);
  } catch {
    notice("This browser has no room for the conversation: delete another one.");
  }
}

// --- Messages

// Notes which of an answer's text was drafted: node.runs has [length, drafted], one behind the other.
function addRuns(node, runs) {
  node.runs ??= [];
  for (const { text, drafted } of runs) {
    const last = node.runs.at(-1);
    if (last?.[1] === drafted) last[0] += text.length;
    else node.runs.push([text.length, drafted]);
  }
}

// Formatted, JSON as such, or as it came, with what was drafted marked.
function answerNodes(node) {
  if (!showsDrafts() || !node.runs?.length) return jsonNodes(node.text) ?? markdown(node.text);
  let end = 0;
  const parts = node.runs.map(([length, drafted]) => {
    const text = node.text.slice(end, (end += length));
    return drafted ? make("mark", {}, text) : text;
  });
  return [make("p", { className: "as-it-came" }, ...parts)];
}

function toggleDrafts(index) {
  setShowsDrafts(!showsDrafts());
  show();
  document.querySelector(`[data-index="${index}"] [aria-pressed]`)?.focus();
}

function draftsButton(index) {
  const element = button("drafts", "Mark what was drafted", () => toggleDrafts(index));
  element.setAttribute("aria-pressed", String(showsDrafts()));
  return element;
}

// The line below an answer.
function statistics(node) {
  const parts = [];
  const { usage, seconds, wait } = node.measured ?? {};
  if (usage) {
    const rate = seconds > 0 ? (usage.completion_tokens - 1) / seconds : 0;
    parts.push(`${usage.completion_tokens} tokens`);
    if (rate > 0) parts.push(`${rate.toFixed(rate < 10 ? 1 : 0)} a second`);
    const drafted = (node.runs ?? []).reduce((sum, run) => sum + (run[1] ? run[0] : 0), 0);
    if (drafted > 0) parts.push(`${Math.round((100 * drafted) / node.text.length)} % drafted`);
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`first after ${wait.toFixed(2)} s`, `prompt ${usage.prompt_tokens}${cached ? ` (${cached} cached)` : ""}`);
  }
  if (node.reason === "length") parts.push("cut at its length");
  if (node.reason === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    notice("This browser does not allow copying.");
  }
}

// ‹ 1/2 › where a message has others beside it.
function branchSwitch(index) {
  const parent = current.nodes[current.nodes[index].parent];
  const selector = () => `[data-index="${parent.children[parent.shown]}"] .branches button:enabled`;
  const count = parent.children.length;
  if (count < 2) return [];
  const step = (by) => () => {
    parent.shown += by;
    save(current);
    show();
    document.querySelector(selector())?.focus();
  };
  const previous = make("button", { type: "button", disabled: parent.shown === 0, onclick: step(-1) }, "‹");
  const next = make("button", { type: "button", disabled: parent.shown === count - 1, onclick: step(1) }, "›");
  previous.setAttribute("aria-label", "The version before");
  next.setAttribute("aria-label", "The next version");
  return [make("span", { className: "branches" }, previous, `${parent.shown + 1}/${count}`, next)];
}

function editor(index) {
  const area = make("textarea", { value: current.nodes[index].text, className: "editor" });
  area.setAttribute("aria-label", "Your message, edited");
  const finish = (sent) => {
    editing = null;
    const text = area.value.trim();
    if (sent && text) ask(text, current.nodes[index].parent);
    else show();
    question.focus();
  };
  area.addEventListener("input", () => fit(area));
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") finish(false);
    else if (!sends(event)) return;
    else finish(true);
    event.preventDefault();
    event.stopPropagation();
  });
  const choose = (label, sent) => make("button", { type: "button", onclick: () => finish(sent) }, label);
  return [area, make("div", { className: "choices" }, choose("Cancel", false), choose("Send", true))];
}

// Each call of a tool: its name and what it is given.
function callNodes(node) {
  return (node.calls ?? []).map((call) => make("div", { className: "call" },
    make("b", {}, `Call of ${call.name}`), ...(jsonNodes(call.arguments) ?? [make("code", {}, call.arguments)])));
}

function addCalls(node, pieces) {
  node.calls ??= [];
  for (const { index, function: piece } of pieces) {
    const call = (node.calls[index] ??= { name: "", arguments: "" });
    call.name += piece.name ?? "";
    call.arguments += piece.arguments ?? "";
  }
}

// The model's thoughts before its answer, folded.
function thoughts(node) {
  if (!node.thought) return [];
  return [make("details", {}, make("summary", {}, "Thoughts"), make("p", {}, node.thought))];
}

function fillMessage(element, index) {
  const node = current.nodes[index];
  const busy = answering?.index === index && answering.conversation === current;
  element.className = `message ${node.role}`;
  element.setAttribute("aria-busy", String(busy));
  if (editing === index) return element.replaceChildren(...editor(index));
  const text = make("div", { className: "text" });
  if (node.role === "user") text.textContent = node.text;
  else showNodes(text, answerNodes(node));
  const parts = [...thoughts(node), text, ...callNodes(node)];
  if (node.error) {
    parts.push(make("p", { className: "error" }, make("span", {}, node.error),
      make("button", { type: "button", onclick: () => again(index) }, "Retry")));
  }
  const tools = [...branchSwitch(index), make("span", { className: "measured" }, statistics(node))];
  if (node.role === "user") {
    tools.push(button("edit", "Edit", () => edit(index)));
  } else {
    if (node.runs?.length) tools.push(draftsButton(index));
    tools.push(button("copy", "Copy the answer", () => copy(node.text)), button("again", "Answer again", () => again(index)));
  }
  if (!busy) parts.push(make("div", { className: "tools" }, ...tools));
  else if (!node.text) text.append(make("span", { className: "waiting" }));
  element.replaceChildren(...parts);
}

function messageElement(index) {
  const element = make("article");
  element.dataset.index = index;
  element.setAttribute("aria-label", current.nodes[index].role === "user" ? "You" : "The model");
  element.setAttribute("aria-live", current.nodes[index].role === "user" ? "off" : "polite");
  fillMessage(element, index);
  return element;
}

function conversationItem(conversation) {
  const open = make("button", { type: "button", onclick: () => switchTo(conversation) }, conversation.title || "New conversation");
  if (conversation === current) open.setAttribute("aria-current", "true");
  const remove = button("close", `Delete: ${open.textContent}`, () => removeConversation(conversation));
  return make("li", {}, open, remove);
}

function show() {
  const path = kept.shownPath(current);
  byId("messages").replaceChildren(...path.map(messageElement));
  byId("welcome").hidden = path.length > 0;
  byId("title").textContent = current.title || "New conversation";
  document.title = current.title ? `${current.title} · Kakeya` : "Kakeya";
  byId("conversations").replaceChildren(...conversations.map(conversationItem));
  showSend();
}

function showSend() {
  const send = byId("send");
  const label = answering ? "Stop" : "Send";
  send.replaceChildren(icon(label.toLowerCase()));
  send.setAttribute("aria-label", label);
  send.title = answering ? "Stop (Esc)" : "Send (Enter)";
  document.body.classList.toggle("answering", Boolean(answering));
}

const atBottom = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
const toBottom = () => (scroll.scrollTop = scroll.scrollHeight);

// --- Answers

function ask(text, parent) {
  if (answering) return;
  if (!conversations.includes(current)) conversations.unshift(current);
  answerTo(kept.addMessage(current, parent, "user", text));
}

// A second answer beside the first; one that failed before its first word is no version to keep.
function again(index) {
  const node = current.nodes[index];
  if (answering) return;
  if (node.error && !node.text) fillAnswer(current, index);
  else answerTo(node.parent);
}

function edit(index) {
  if (answering) return;
  editing = index;
  show();
  const area = document.querySelector(".editor");
  fit(area);
  area.focus();
}

// Shows what has come, once a frame at most.
function painter(node, index) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const text = document.querySelector(`#messages [data-index="${index}"] .text`);
      if (!text || answering?.index !== index || answering.conversation !== current) return;
      const follow = atBottom();
      text.querySelector(".waiting")?.remove();
      showNodes(text, answerNodes(node));
      const shown = text.parentElement.querySelector("details");
      if (shown) shown.lastChild.textContent = node.thought;
      else text.before(...thoughts(node));
      for (const old of text.parentElement.querySelectorAll(".call")) old.remove();
      text.after(...callNodes(node));
      if (follow) toBottom();
    });
  };
}

function answerTo(parent) {
  return fillAnswer(current, kept.addMessage(current, parent, "assistant", ""));
}

async function fillAnswer(conversation, index) {
  const node = conversation.nodes[index];
  delete node.error;
  delete node.thought;
  delete node.runs;
  delete node.calls;
  const controller = new AbortController();
  answering = { controller, conversation, index };
  notice("");
  show();
  toBottom();
  save(conversation);
  say("Answering");
  const began = performance.now();
  const paint = painter(node, index);
  const looking = setInterval(showServer, 1000);
  const body = { model, messages: kept.messagesBefore(conversation, index), ...sampling(), ...forms() };
  try {
    const { usage, reason, firstAt, endAt } = await streamAnswer(body, controller.signal, (piece, runs) => {
      node.text += piece;
      addRuns(node, runs);
      paint();
    }, (piece) => {
      node.thought = (node.thought ?? "") + piece;
      paint();
    }, (pieces) => {
      addCalls(node, pieces);
      paint();
    });
    node.reason = reason;
    node.measured = { usage, wait: (firstAt - began) / 1000, seconds: (endAt - firstAt) / 1000 };
    say("The answer is complete");
  } catch (error) {
    if (controller.signal.aborted) node.reason = "stopped";
    else node.error = error instanceof TypeError ? "The server cannot be reached." : error.message;
    say(node.error ?? "Stopped");
  }
  clearInterval(looking);
  answering = null;
  save(conversation);
  const follow = atBottom();
  show();
  if (follow) toBottom();
  showServer();
}

// --- Conversations

function switchTo(conversation) {
  current = conversation;
  editing = null;
  closeMenu();
  show();
  toBottom();
  question.focus();
}

function removeConversation(conversation) {
  if (!confirm(`Delete "${conversation.title}"?`)) return;
  if (answering?.conversation === conversation) stop();
  kept.deleteConversation(conversation);
  conversations = conversations.filter((other) => other !== conversation);
  switchTo(conversation === current ? (conversations[0] ?? kept.newConversation("")) : current);
}

// --- What the person does

const sends = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

function stop() {
  answering?.controller.abort();
}

function closeMenu() {
  document.body.classList.remove("menu-open");
  byId("open-menu").setAttribute("aria-expanded", "false");
}

function submit() {
  if (answering) return stop();
  const text = question.value.trim();
  if (!text || !model) return;
  question.value = "";
  fit(question);
  ask(text, kept.shownPath(current).at(-1) ?? 0);
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
question.addEventListener("input", () => fit(question));
question.addEventListener("keydown", (event) => {
  if (!sends(event)) return;
  event.preventDefault();
  if (!answering) submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || byId("settings").open) return;
  if (document.body.classList.contains("menu-open")) {
    closeMenu();
    byId("open-menu").focus();
  } else {
    stop();
  }
});
byId("new").addEventListener("click", () => switchTo(kept.newConversation(current.system)));
byId("open-menu").addEventListener("click", () => {
  document.body.classList.add("menu-open");
  byId("open-menu").setAttribute("aria-expanded", "true");
  byId("close-menu").focus();
});
byId("close-menu").addEventListener("click", closeMenu);
byId("scrim").addEventListener("click", closeMenu);
byId("open-settings").addEventListener("click", () => openSettings(current));
byId("suggestions").append(...["Count from 5 to 12.", "Write a Python function that adds two numbers.", "Tell me a story."]
  .map((text) => make("button", { type: "button", onclick: () => model && ask(text, 0) }, text)));
addEventListener("pagehide", () => answering && save(answering.conversation));

setUpSettings((conversation) => conversations.includes(conversation) && save(conversation));
show();
toBottom();
question.focus();

async function connect() {
  try {
    model = await setUpServer(model);
    notice("");
  } catch (error) {
    notice(error instanceof TypeError ? "The server cannot be reached; trying again." : error.message);
    setTimeout(connect, 2000);
  }
}
byId("model").addEventListener("change", (event) => {
  model = event.target.value;
  connect();
});
connect();
