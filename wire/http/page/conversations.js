// Conversations, which this browser keeps. One is a tree of messages: an edited question or a second
// answer is one more child of the message before it, and each message knows which child is shown.
//
// {id, title, system, changed, nodes: [{role, text, parent, children, shown, ...}]}; nodes[0] is the
// root, which is no message; parent and children are indexes, shown is one into children.

const PREFIX = "kakeya.conversation.";

export function newConversation(system) {
  const root = { role: "root", text: "", parent: null, children: [], shown: 0 };
  return { id: crypto.randomUUID(), title: "", system, changed: Date.now(), nodes: [root] };
}

// Adds a message and shows it; returns its index.
export function addMessage(conversation, parent, role, text) {
  const index = conversation.nodes.push({ role, text, parent, children: [], shown: 0 }) - 1;
  const siblings = conversation.nodes[parent].children;
  conversation.nodes[parent].shown = siblings.push(index) - 1;
  conversation.changed = Date.now();
  if (role === "user" && !conversation.title) {
    conversation.title = text.trim().replace(/\s+/g, " ").slice(0, 60);
  }
  return index;
}

// Indexes of the messages that are shown, from the first one on.
export function shownPath(conversation) {
  const path = [];
  let node = conversation.nodes[0];
  while (node.children.length > 0) {
    path.push(node.children[node.shown]);
    node = conversation.nodes[path.at(-1)];
  }
  return path;
}

// The messages before message `index`, as the API wants them.
export function messagesBefore(conversation, index) {
  const messages = [];
  for (let at = conversation.nodes[index].parent; at !== 0; at = conversation.nodes[at].parent) {
    messages.unshift({ role: conversation.nodes[at].role, content: conversation.nodes[at].text });
  }
  if (conversation.system.trim()) messages.unshift({ role: "system", content: conversation.system });
  return messages;
}

// True if the stored value is a conversation: another version may have written it.
function isSound(conversation) {
  const sound = (node, index) => {
    const isIndex = (child) => Number.isInteger(child) && child > index;
    return typeof node.text === "string" && node.children.every(isIndex) &&
      node.children.every((child) => conversation.nodes[child]?.parent === index) &&
      (node.children.length === 0 || node.shown in node.children);
  };
  return typeof conversation.id === "string" && typeof conversation.title === "string" &&
    typeof conversation.system === "string" && conversation.nodes.every(sound);
}

// All that are kept, the latest first.
export function loadConversations() {
  const found = [];
  for (const key of Object.keys(localStorage)) {
    if (!key.startsWith(PREFIX)) continue;
    try {
      const conversation = JSON.parse(localStorage.getItem(key));
      if (isSound(conversation)) found.push(conversation);
    } catch {
      // Not one of ours; left as it is.
    }
  }
  return found.sort((a, b) => b.changed - a.changed);
}

// Throws if the browser has no room for it.
export function saveConversation(conversation) {
  localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
}

export function deleteConversation(conversation) {
  localStorage.removeItem(PREFIX + conversation.id);
}
