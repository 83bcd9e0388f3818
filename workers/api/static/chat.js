// The page of the web channel: own messages at once, everything else as the server says it, in its order.
"use strict";

const log = document.getElementById("log");
const form = document.getElementById("composer");
const field = document.getElementById("text");
const send = document.getElementById("send");
const connection = document.getElementById("connection");

const PENDING_FOR_MS = 120000;
const own = new Map();
let last = null;
let pending = null;
let pendingTimer = 0;
let wait = 1000;

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function show(node, before) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 120;
  log.insertBefore(node, before || pending);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function bubble(direction, text, at) {
  const item = element("li", `bubble ${direction}`, text);
  item.prepend(element("span", "quiet", direction === "in" ? "You: " : "Reply: "));
  if (at) {
    item.dataset.at = at;
    item.title = new Date(at).toLocaleString();
  }
  show(item, at && firstLaterThan(at));
  return item;
}

// A quick reply can be in the mailbox before the message it answers; both carry the database's time.
function firstLaterThan(at) {
  return [...log.querySelectorAll(".bubble[data-at]")].find((item) => item.dataset.at > at);
}

function expectReply() {
  clearTimeout(pendingTimer);
  if (!pending) {
    const waiting = element("li", "bubble out pending");
    waiting.setAttribute("aria-label", "A reply is on its way");
    for (let dot = 0; dot < 3; dot += 1) waiting.append(document.createElement("i"));
    show(waiting);
    pending = waiting;
  } else {
    log.append(pending);
  }
  pendingTimer = setTimeout(replyCame, PENDING_FOR_MS);
}

function replyCame() {
  clearTimeout(pendingTimer);
  if (pending) pending.remove();
  pending = null;
}

function mark(message, state) {
  message.item.classList.remove("sending", "failed");
  if (message.note) message.note.remove();
  message.note = null;
  if (state === "sent") return;
  message.item.classList.add(state);
  message.note = element("li", "note", state === "sending" ? "Sending" : "Not sent.");
  if (state === "failed") {
    const again = element("button", "", "Try again");
    again.type = "button";
    again.addEventListener("click", () => post(message));
    message.note.append(again);
  }
  show(message.note, message.item.nextSibling);
}

async function post(message) {
  mark(message, "sending");
  try {
    const answer = await fetch("/web/messages", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ text: message.text, client_id: message.id }),
    });
    if (!answer.ok) throw new Error(String(answer.status));
  } catch {
    if (!message.kept) mark(message, "failed");
    return;
  }
  mark(message, "sent");
  if (!message.answered) expectReply();
}

function receive(letter) {
  last = letter.id;
  if (letter.direction === "out") {
    replyCame();
    for (const message of own.values()) message.answered = true;
    bubble("out", letter.text, letter.at);
    return;
  }
  const message = own.get(letter.message);
  if (!message) {
    bubble("in", letter.text, letter.at);
    return;
  }
  message.kept = true;
  message.item.dataset.at = letter.at;
  mark(message, "sent");
}

function connect() {
  const from = last === null ? "" : `?after=${last}`;
  const source = new EventSource(`/web/events${from}`);
  source.addEventListener("open", () => {
    wait = 1000;
    state("open", "Connected");
  });
  source.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    state("lost", "Reconnecting");
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(async () => {
      await fetch("/", { cache: "no-store" }).catch(() => null); // an ended session gets its new cookie here
      connect();
    }, wait);
    wait = Math.min(wait * 2, 15000);
  });
}

function state(name, text) {
  if (connection.dataset.state === name) return;
  connection.dataset.state = name;
  connection.textContent = text;
}

function fit() {
  send.disabled = field.value.trim() === "";
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = field.value.trim();
  if (!text) return;
  const message = { id: newId(), text, item: bubble("in", text), note: null, answered: false, kept: false };
  own.set(message.id, message);
  field.value = "";
  fit();
  log.scrollTop = log.scrollHeight;
  post(message);
});

field.addEventListener("input", fit);
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
fit();
connect();
