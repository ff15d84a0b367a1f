// A conversation over the server's own /v1/chat/completions, and what /metrics says meanwhile. Text of models, users and
// tools becomes text nodes only. All paths are relative, so that the page also works below a proxy's path.

const $ = (id) => document.getElementById(id);

// el makes an element; children are nodes, or strings that become text.
function el(tag, props = {}, ...children) {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children);
  return e;
}

// What a tab keeps. A turn is {role, content} of a user, {role, content, id, name} of a tool's result, or an answer:
// {role, content, reasoning, calls, finish, note, error}.
const stored = {
  read(name, or) {
    try {
      return JSON.parse(sessionStorage.getItem(name)) ?? or;
    } catch {
      return or;
    }
  },
  write(name, value) {
    try {
      sessionStorage.setItem(name, JSON.stringify(value));
    } catch { } // full or forbidden: the page works, and forgets on reload
  },
};
let turns = stored.read("cedrun.turns", []);
let key = stored.read("cedrun.key", "");
for (const t of turns) if (t.role === "assistant" && !t.finish && !t.error) t.note = "Stopped."; // by leaving the page
let running = null; // the AbortController of the answer being written

// ---- the server

class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

async function call(path, init = {}) {
  const headers = {};
  if (init.body) headers["Content-Type"] = "application/json";
  if (key) {
    if (/[^\x21-\x7e]/.test(key)) throw new Failure("The API key holds characters that no key has.", 401);
    headers.Authorization = "Bearer " + key;
  }
  let r;
  try {
    r = await fetch(path, { cache: "no-store", ...init, headers });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new Failure("The server cannot be reached. Is it still running?");
  }
  if (r.ok) return r;
  const said = await r.json().catch(() => null);
  throw new Failure(said?.error?.message ?? `The server answered ${r.status} ${r.statusText}.`, r.status);
}

// events yields the data of a stream. Comments say what a silent server does.
async function* events(body, signal, comment) {
  const r = await call("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line === "data: [DONE]") return;
        if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
        if (line.startsWith(":")) comment(line.slice(1).trim());
      }
    }
  } catch (e) {
    if (signal.aborted || e instanceof Failure) throw e;
  } finally {
    reader.cancel().catch(() => { });
  }
  throw new Failure("The connection ended before the answer was complete.");
}

// ---- settings

const fields = ["system", "temperature", "limit", "effort", "tools", "choice"];

function tools() {
  const text = $("tools").value.trim();
  let list = [], wrong = "";
  if (text) {
    try {
      list = JSON.parse(text);
      if (!Array.isArray(list)) wrong = "This must be a JSON list.";
      else list = list.map((t) => (t?.function ? t : { type: "function", function: t }));
    } catch (e) {
      wrong = `This is no JSON: ${e.message}`;
    }
  }
  $("tools").setAttribute("aria-invalid", Boolean(wrong));
  $("tools").setCustomValidity(wrong);
  $("tools-note").textContent = wrong;
  return list;
}

function request() {
  const body = { messages: messages(), stream: true, stream_options: { include_usage: true } };
  const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));
  body.temperature = number("temperature");
  body.max_tokens = number("limit");
  body.reasoning_effort = $("effort").value || undefined;
  const list = tools();
  if (list.length) {
    body.tools = list;
    body.tool_choice = $("choice").value || undefined;
  }
  return body;
}

// messages is the conversation as the API takes it. Calls that were cut off are left out, and so are empty answers.
function messages() {
  const list = [];
  const system = $("system").value;
  if (system.trim()) list.push({ role: "system", content: system });
  for (const t of turns) {
    if (t.role === "tool") list.push({ role: "tool", tool_call_id: t.id, content: t.content });
    if (t.role === "user") list.push({ role: "user", content: t.content });
    if (t.role !== "assistant") continue;
    const calls = complete(t);
    if (!t.content && !calls.length) continue;
    const m = { role: "assistant", content: t.content };
    if (t.reasoning) m.reasoning_content = t.reasoning;
    if (calls.length) m.tool_calls = calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
    list.push(m);
  }
  return list;
}

const complete = (turn) => (turn.finish === "tool_calls" ? turn.calls : []);

// pending are the calls of the last answer that have no result yet.
function pending() {
  const last = turns.findLast((t) => t.role === "assistant");
  if (!last) return [];
  const after = turns.slice(turns.indexOf(last) + 1);
  return complete(last).filter((c) => !after.some((t) => t.id === c.id));
}

// ---- what a conversation looks like

// blocks splits text into paragraphs and fenced code.
function blocks(text) {
  const list = [];
  let code = false, lines = [];
  const end = () => {
    if (code || lines.length) list.push({ code, text: lines.join("\n") });
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) {
      end();
      code = !code;
    } else if (!code && !line.trim()) {
      end();
    } else {
      lines.push(line);
    }
  }
  if (!code || lines.length) end();
  return list;
}

function paragraph(text) {
  const p = el("p");
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (/^`.+`$/.test(part)) p.append(el("code", {}, part.slice(1, -1)));
    else if (/^\*\*.+\*\*$/.test(part)) p.append(el("strong", {}, part.slice(2, -2)));
    else p.append(part);
  }
  return p;
}

// show makes parent hold a text; blocks that are as before stay.
function show(parent, text) {
  const list = blocks(text);
  list.forEach((b, i) => {
    const old = parent.children[i];
    if (old?.source === b.text && (old.tagName === "PRE") === b.code) return;
    const fresh = b.code ? el("pre", { tabIndex: 0 }, el("code", {}, b.text)) : paragraph(b.text);
    fresh.source = b.text;
    if (old) old.replaceWith(fresh);
    else parent.append(fresh);
  });
  while (parent.children.length > list.length) parent.lastChild.remove();
}

// view shows a turn at the end of the conversation; its update shows what has changed.
function view(turn) {
  const text = el("div", { className: "text" });
  const who = { user: "You", tool: `Result of ${turn.name}`, assistant: "Answer" }[turn.role];
  const item = el("li", { className: `turn ${turn.role}` }, el("h2", {}, who));
  $("turns").append(item);
  if (turn.role !== "assistant") {
    item.append(text);
    text.append(turn.role === "tool" ? el("pre", { tabIndex: 0 }, turn.content) : el("p", {}, turn.content));
    return { item, update() { } };
  }
  const thought = el("div", { className: "text" });
  const thinking = el("summary");
  const reasoning = el("details", { className: "reasoning", hidden: true }, thinking, thought);
  const calls = el("div");
  const problem = el("p", { className: "problem", hidden: true });
  const note = el("p", { className: "note" });
  const foot = el("div", { className: "foot" }, note);
  const copy = el("button", { type: "button", onclick: () => navigator.clipboard.writeText(turn.content).then(() => say("Copied"), () => say("Copying is not allowed")) }, "Copy");
  const again = el("button", { type: "button", className: "again", onclick: regenerate });
  foot.append(copy, again);
  item.append(reasoning, text, calls, problem, foot);
  const update = () => {
    reasoning.hidden = !turn.reasoning;
    thinking.textContent = running && !turn.content && !turn.calls.length && !turn.finish ? "Reasoning …" : "Reasoning";
    show(thought, turn.reasoning);
    show(text, turn.content.trimStart());
    turn.calls.forEach((c, i) => {
      const old = calls.children[i] ?? calls.appendChild(el("div", { className: "call" }, el("p", {}, "Call of ", el("b")), el("pre", { tabIndex: 0 })));
      old.querySelector("b").textContent = c.name;
      old.querySelector("pre").textContent = pretty(c.arguments);
    });
    problem.hidden = !turn.error;
    problem.textContent = turn.error ?? "";
    note.textContent = turn.note ?? "";
    copy.hidden = !turn.content || !navigator.clipboard; // browsers have it where the connection is secure
    again.textContent = turn.error ? "Try again" : "Regenerate";
  };
  update();
  return { item, update };
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // not whole yet
  }
}

// speaker reads an answer out to those who listen: paragraph by paragraph at most every few seconds, not by tokens.
function speaker() {
  let told = 0, last = performance.now();
  $("spoken").replaceChildren();
  return (text, ended) => {
    const now = performance.now();
    if (!ended && now - last < 4000) return;
    const list = blocks(text);
    for (const b of list.slice(told, ended ? list.length : -1)) $("spoken").append(el("p", {}, b.text));
    told = Math.max(told, ended ? list.length : list.length - 1);
    last = now;
  };
}

function say(text) {
  if ($("doing").textContent !== text) $("doing").textContent = text;
}

// ---- an answer

async function answer() {
  const turn = { role: "assistant", content: "", reasoning: "", calls: [] };
  turns.push(turn);
  const abort = (running = new AbortController());
  const shown = view(turn);
  const speak = speaker();
  let drawn = 0, saved = 0;
  const draw = () => {
    drawn = 0;
    const low = $("chat").scrollHeight - $("chat").scrollTop - $("chat").clientHeight < 80;
    shown.update();
    if (low) $("chat").scrollTop = $("chat").scrollHeight;
    speak(turn.content, false);
    if (performance.now() - saved > 1000) {
      stored.write("cedrun.turns", turns);
      saved = performance.now();
    }
  };
  shown.item.classList.add("writing");
  mode();
  $("chat").scrollTop = $("chat").scrollHeight;
  say("Waiting for the first token");
  const began = performance.now();
  let first = 0, usage = null;
  try {
    for await (const e of events(request(), abort.signal, (c) => say(c === "keep-alive" ? "" : c))) {
      if (e.error) throw new Failure(e.error.message);
      usage = e.usage ?? usage;
      const c = e.choices[0];
      if (!c) continue;
      const d = c.delta;
      if (d.content || d.reasoning_content || d.tool_calls) first ||= performance.now();
      turn.content += d.content ?? "";
      turn.reasoning += d.reasoning_content ?? "";
      for (const t of d.tool_calls ?? []) {
        const one = (turn.calls[t.index] ??= { id: t.id, name: t.function.name, arguments: "" });
        one.arguments += t.function.arguments ?? "";
      }
      turn.finish = c.finish_reason ?? turn.finish;
      if (c.warning) turn.error = `The model wrote a tool call that cannot be read: ${c.warning}`;
      if (first) say(turn.calls.length ? "Calling a tool" : turn.content ? "Writing" : "Reasoning");
      drawn ||= requestAnimationFrame(draw);
    }
    turn.note = summary(usage, began, first, turn.finish);
  } catch (e) {
    if (abort.signal.aborted) turn.note = "Stopped.";
    else turn.error = e.message;
    if (e.status === 401) askKey();
  }
  cancelAnimationFrame(drawn);
  running = null;
  shown.item.classList.remove("writing");
  draw();
  speak(turn.content, true);
  if (turn.error) $("spoken").append(el("p", {}, turn.error));
  say(turn.error ? "Failed" : turn.note === "Stopped." ? "Stopped" : pending().length ? "A tool was called" : "");
  stored.write("cedrun.turns", turns);
  mode();
}

function summary(u, began, first, finish) {
  if (!u) return "";
  const n = (x) => x.toLocaleString("en");
  const s = (ms) => `${(ms / 1000).toFixed(2)} s`;
  const parts = [`${n(u.prompt_tokens)} in, ${n(u.prompt_tokens_details?.cached_tokens ?? 0)} cached`];
  if (first) {
    const took = performance.now() - first;
    const rate = took > 100 ? ` at ${n(Math.round((1000 * (u.completion_tokens - 1)) / took))} tok/s` : "";
    parts.push(`first after ${s(first - began)}`, `${n(u.completion_tokens)} out${rate}`);
  }
  if (finish === "length") parts.push("limit reached");
  return parts.join(" · ");
}

async function regenerate() {
  if (running) return;
  const at = turns.findLastIndex((t) => t.role === "assistant");
  turns.length = at;
  redraw();
  $("prompt").focus();
  await answer();
}

function redraw() {
  $("turns").replaceChildren();
  turns.forEach(view);
  $("chat").scrollTop = $("chat").scrollHeight;
  mode();
}

// mode shows what can be done now.
function mode() {
  const wanted = pending();
  $("empty").hidden = turns.length > 0;
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
  $("turns").classList.toggle("busy", Boolean(running));
  $("prompt-label").textContent = wanted.length ? `Result of ${wanted[0].name}` : "Message";
  $("send").textContent = wanted.length ? "Send result" : "Send";
}

async function submit() {
  const text = $("prompt").value;
  if (running || !text.trim()) return;
  tools();
  if (!$("options").checkValidity()) {
    $("settings").open = true;
    $("options").reportValidity();
    return;
  }
  const [wanted] = pending();
  const turn = wanted ? { role: "tool", content: text, id: wanted.id, name: wanted.name } : { role: "user", content: text };
  turns.push(turn);
  view(turn);
  stored.write("cedrun.turns", turns);
  $("prompt").value = "";
  grow();
  mode();
  $("prompt").focus();
  if (!pending().length) await answer();
}

function stop() {
  running?.abort();
  $("prompt").focus();
}

function grow() {
  const p = $("prompt");
  p.style.height = "auto";
  p.style.height = `${p.scrollHeight + 2}px`;
}

function askKey() {
  $("keyed").hidden = false;
  $("settings").open = true;
  $("key").focus();
}

// ---- counters

// parse reads Prometheus text: a value per name with labels.
function parse(text) {
  const m = new Map();
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && line[0] !== "#") m.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return m;
}

let before = null, named = false, timer = 0;

async function poll() {
  let wait = 1000;
  try {
    const now = parse(await (await call("metrics")).text());
    if (now.get("cedrun_ready") === 1) {
      counters(now);
      if (!named) await describe();
      state("ready", "good");
    } else {
      const r = await fetch("ready", { cache: "no-store" });
      state((await r.json()).status.replace("_", " "), "");
      named = false;
    }
    $("keyed").hidden = !key;
  } catch (e) {
    state(e.status === 401 ? "needs a key" : "offline", "bad");
    if (e.status === 401 && $("keyed").hidden) askKey();
    wait = 3000;
  }
  later(wait);
}

function later(ms) {
  clearTimeout(timer);
  timer = setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", poll, { once: true }) : poll()), ms);
}

function state(text, kind) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = kind;
}

async function describe() {
  const [m] = (await (await call("v1/models")).json()).data;
  $("model").textContent = m.id;
  document.title = `${m.id} – cedrun`;
  $("degraded").replaceChildren(...m.degraded.map((d) => el("li", {}, d)));
  named = true;
}

function counters(now) {
  const get = (name) => now.get("cedrun_" + name) ?? 0;
  const moved = (name) => get(name) - (before?.get("cedrun_" + name) ?? 0);
  const n = (x) => Math.round(x).toLocaleString("en");
  const rate = (id, tokens, seconds) => {
    if (tokens > 0 && seconds > 0) $(id).textContent = `${n(tokens / seconds)} tok/s`;
  };
  rate("prefill", moved("prompt_tokens_total") - moved("cached_tokens_total"), moved("prefill_seconds_total"));
  rate("decode", moved("inter_token_seconds_count"), moved("inter_token_seconds_sum"));
  const share = get("cached_tokens_total") / Math.max(get("prompt_tokens_total"), 1);
  $("hits").textContent = `${n(100 * share)} % of ${n(get("prompt_tokens_total"))}`;
  $("running").textContent = n(get("requests_running"));
  $("waiting").textContent = n(get("requests_waiting"));
  const used = get("kv_cache_usage_ratio");
  $("kv").textContent = `${n(used * get("kv_cache_tokens"))} of ${n(get("kv_cache_tokens"))}`;
  $("kv-bar").value = used;
  const rows = [...now].flatMap(([name, value]) => {
    const m = /^cedrun_kv_(\w+)\{tier="(\w+)"\}$/.exec(name);
    return m ? [[`KV ${m[1].replaceAll("_", " ")}, ${m[2]}`, value]] : [];
  });
  if (now.has("cedrun_snapshots")) rows.push(["Snapshots", get("snapshots")]);
  $("tiers").replaceChildren(...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, n(value)))));
  before = now;
}

// ---- beginning

const options = stored.read("cedrun.options", {});
for (const id of fields) $(id).value = options[id] ?? "";
$("options").addEventListener("input", () => {
  stored.write("cedrun.options", Object.fromEntries(fields.map((id) => [id, $(id).value])));
  tools();
});
$("options").addEventListener("submit", (e) => e.preventDefault());
$("key").value = key;
$("key").addEventListener("change", () => {
  key = $("key").value.trim();
  stored.write("cedrun.key", key);
  later(0);
});
$("composer").addEventListener("submit", (e) => {
  e.preventDefault();
  submit();
});
$("prompt").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    submit();
  }
});
$("prompt").addEventListener("input", grow);
$("stop").addEventListener("click", stop);
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") stop();
});
$("fresh").addEventListener("click", () => {
  running?.abort();
  turns = [];
  stored.write("cedrun.turns", turns);
  say("");
  redraw();
  $("prompt").focus();
});
addEventListener("pagehide", () => {
  stored.write("cedrun.turns", turns);
  running?.abort();
});

const wide = matchMedia("(min-width: 55.01rem)").matches;
$("settings").open = $("counters").open = wide;
if (wide) $("prompt").focus(); // elsewhere a keyboard would cover half of the page
tools();
redraw();
poll();
