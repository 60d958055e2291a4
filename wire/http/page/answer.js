// Asks the server for answers and for what it says about itself.

// The server's words for a request that it refuses, in one line.
async function refusal(response) {
  let message = "";
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not an error of this server's.
  }
  if (response.status === 401) message = "The server asks for a key: give it in the settings.";
  return new Error(message || `the server answered with status ${response.status}`);
}

// The key that a server may ask for, kept until the tab is closed.
const KEY = "kakeya.key";

export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setKey(text) {
  sessionStorage.setItem(KEY, text);
}

function withKey(headers = {}) {
  return key() ? { ...headers, Authorization: `Bearer ${key()}` } : headers;
}

async function get(path) {
  const response = await fetch(path, { headers: withKey() });
  if (!response.ok) throw await refusal(response);
  return response;
}

// The texts of the server's events, one after the other.
async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) yield event.slice(6);
  }
}

// Streams an answer to `body`: onText gets each piece and its runs, [{text, drafted}, ...], onThought
// each piece of what the model thinks, onCalls pieces of calls of tools, [{index, function: {name,
// arguments}}, ...]. Returns {usage, reason, firstAt, endAt}, in
// milliseconds of performance.now(). Throws what the server says, or an AbortError after a stop.
export async function streamAnswer(body, signal, onText, onThought, onCalls) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: withKey({ "Content-Type": "application/json" }),
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, return_runs: true }),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  const result = { usage: null, reason: null, firstAt: 0, endAt: 0 };
  for await (const event of eventsOf(response.body)) {
    if (event === "[DONE]") return result;
    const chunk = JSON.parse(event);
    if (chunk.error) throw new Error(chunk.error.message);
    result.usage = chunk.usage ?? result.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    result.endAt = performance.now();
    result.firstAt ||= result.endAt;
    result.reason = choice.finish_reason ?? result.reason;
    if (choice.delta.reasoning_content) onThought(choice.delta.reasoning_content);
    if (choice.delta.tool_calls) onCalls(choice.delta.tool_calls);
    if (choice.delta.content) onText(choice.delta.content, choice.runs ?? []);
  }
  throw new Error("the connection ended before the answer did");
}

// The names of all models, the default one first.
export async function readModels() {
  return (await (await get("/v1/models")).json()).data.map((model) => model.id);
}

// Context and default sampling of a model, and what runs it.
export async function readProperties(model) {
  return (await get(`/props?model=${encodeURIComponent(model)}`)).json();
}

// {classes: [[name, bytes], ...] that have any, drafted, accepted}
export async function readMetrics() {
  const text = await (await get("/metrics")).text();
  // Of all models together.
  const value = (name) => [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "gm"))]
    .reduce((sum, row) => sum + Number(row[1]), 0);
  const names = new Set([...text.matchAll(/^kakeya_memory_bytes\{class="(\w+)"/gm)].map((row) => row[1]));
  return {
    classes: [...names].map((name) => [name, value(`kakeya_memory_bytes\\{class="${name}".*\\}`)]).filter((row) => row[1] > 0),
    drafted: value("kakeya_drafted_tokens_total"),
    accepted: value("kakeya_accepted_tokens_total"),
  };
}
