// Markdown as models write it, to DOM nodes. Text only ever becomes text nodes, so nothing that a
// model writes can become markup; links go to http and https alone.

const MOST_DEPTH = 8; // of lists, quotes and emphasis in each other

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const JSON_PART = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

// An object or array of JSON, indented and coloured; null for any other text.
export function jsonNodes(text) {
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (value === null || typeof value !== "object") return null;
  const shown = JSON.stringify(value, null, 2);
  const parts = [];
  let written = 0;
  for (const found of shown.matchAll(JSON_PART)) {
    const [all, string, colon] = found;
    parts.push(shown.slice(written, found.index));
    const kind = colon ? "json-key" : string ? "json-text" : "json-value";
    parts.push(make("span", { className: kind }, string ?? all), colon ?? "");
    written = found.index + all.length;
  }
  return [make("pre", { className: "json" }, ...parts, shown.slice(written))];
}

function link(label, address, depth) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  return make("a", { href: url.href, rel: "noopener noreferrer", target: "_blank" },
    ...inline(label, depth + 1));
}

// Each: where it may begin, and a node of what was found, or null if it is but text.
const INLINE = [
  [/(`+)([^`]|[^`][^]*?[^`])\1(?!`)/y, (found) => make("code", {}, found[2].replace(/^ (.+) $/, "$1"))],
  [/\*\*(?=\S)([^]{0,2000}?\S)\*\*/y, (found, depth) => make("strong", {}, ...inline(found[1], depth + 1))],
  [/\*(?=[^\s*])([^*]*[^\s*])\*/y, (found, depth) => make("em", {}, ...inline(found[1], depth + 1))],
  [/(?<!\w)_(?=[^\s_])([^_]*[^\s_])_(?!\w)/y, (found, depth) => make("em", {}, ...inline(found[1], depth + 1))],
  [/\[([^[\]]+)\]\(([^\s()]+)\)/y, (found, depth) => link(found[1], found[2], depth)],
  [/https?:\/\/[^\s<>()"']*[^\s<>()"'.,;:!?]/y, (found) => link("", found[0], 0)],
  [/\\([\\`*_[\]()#+.!-])/y, (found) => found[1]],
];
const MAY_BEGIN = /[`*_[\\]|https?:/g;

function inline(text, depth = 0) {
  const nodes = [];
  let written = 0;
  for (let at = 0; depth < MOST_DEPTH; ) {
    MAY_BEGIN.lastIndex = at;
    const begin = MAY_BEGIN.exec(text)?.index;
    if (begin === undefined) break;
    at = begin + 1;
    for (const [pattern, build] of INLINE) {
      pattern.lastIndex = begin;
      const found = pattern.exec(text);
      const node = found && build(found, depth);
      if (!node) continue;
      if (node.tagName === "A" && !node.hasChildNodes()) node.append(found[0]);
      nodes.push(text.slice(written, begin), node);
      at = written = begin + found[0].length;
      break;
    }
  }
  nodes.push(text.slice(written));
  return nodes;
}

function codeBlock(text, language) {
  const copy = make("button", { type: "button", className: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return make("div", { className: "code" },
    make("div", { className: "code-head" }, make("span", {}, language || "text"), copy),
    make("pre", { tabIndex: 0 }, make("code", {}, text)));
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)/;
const ITEM = /^(\s*)([-*+]|(\d{1,9})[.)])(?:\s+|$)/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const beginsBlock = (line) => [FENCE, HEADING, ITEM, RULE, /^\s*>/].some((form) => form.test(line));

// A list from lines[at] on; its items are blocks themselves. Returns where it ends.
function list(lines, at, depth, nodes) {
  const first = lines[at].match(ITEM);
  const element = make(first[3] ? "ol" : "ul");
  if (first[3]) element.start = Number(first[3]);
  while (at < lines.length) {
    const item = lines[at].match(ITEM);
    if (!item || Boolean(item[3]) !== Boolean(first[3]) || item[1].length > first[1].length + 1) break;
    if (RULE.test(lines[at]) || item[1].length < first[1].length) break;
    const own = [lines[at++].slice(item[0].length)];
    for (; at < lines.length; ++at) {
      const indent = lines[at].search(/\S/);
      if (indent >= 0 && indent <= item[1].length + 1 && (own.at(-1) === "" || beginsBlock(lines[at]))) break;
      own.push(indent < 0 ? "" : lines[at].slice(Math.min(indent, item[0].length)));
    }
    const content = blocks(own, depth + 1);
    // An item of one paragraph is but a line.
    const flat = content[0]?.tagName === "P" ? [...content[0].childNodes, ...content.slice(1)] : content;
    element.append(make("li", {}, ...flat));
  }
  nodes.push(element);
  return at;
}

function blocks(lines, depth = 0) {
  const nodes = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fence = line.match(FENCE);
    const heading = line.match(HEADING);
    if (line.trim() === "") {
      ++at;
    } else if (fence) {
      const own = [];
      while (++at < lines.length && !lines[at].trim().startsWith(fence[1])) own.push(lines[at]);
      ++at;
      nodes.push(codeBlock(own.join("\n"), fence[2]));
    } else if (heading) {
      nodes.push(make(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2])));
      ++at;
    } else if (RULE.test(line)) {
      nodes.push(make("hr"));
      ++at;
    } else if (/^\s*>/.test(line) && depth < MOST_DEPTH) {
      const own = [];
      while (/^\s*>/.test(lines[at] ?? "")) own.push(lines[at++].replace(/^\s*> ?/, ""));
      nodes.push(make("blockquote", {}, ...blocks(own, depth + 1)));
    } else if (ITEM.test(line) && depth < MOST_DEPTH) {
      at = list(lines, at, depth, nodes);
    } else {
      const own = [lines[at++].trim()];
      while (at < lines.length && lines[at].trim() && !beginsBlock(lines[at])) own.push(lines[at++].trim());
      nodes.push(make("p", {}, ...inline(own.join("\n"))));
    }
  }
  return nodes;
}

// The nodes of a text, which may still be growing.
export function markdown(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"));
}

// Shows `nodes` in `element`, and leaves those that are there already as they are: what somebody has
// selected stays so while an answer grows.
export function showNodes(element, nodes) {
  nodes.forEach((node, index) => {
    const old = element.children[index];
    if (!old) element.append(node);
    else if (!old.isEqualNode(node)) old.replaceWith(node);
  });
  while (element.children.length > nodes.length) element.lastElementChild.remove();
}
