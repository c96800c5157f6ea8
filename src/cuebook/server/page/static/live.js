// Turns as they come: each event is one turn, shown by text alone; nothing of it is read as HTML.
const list = document.getElementById("turns");
const state = document.getElementById("state");
const MOST = 60;

function line(name, text) {
  const made = document.createElement("p");
  made.className = name;
  made.textContent = text;
  return made;
}

function facts(turn) {
  const made = document.createElement("p");
  made.className = "facts";
  made.append(`${turn.tokens.toLocaleString("en")} of ${turn.budget.toLocaleString("en")} tokens`);
  for (const [kind, tokens] of Object.entries(turn.kinds)) {
    const dot = document.createElement("span");
    dot.className = `dot kind-${kind}`;
    made.append(" · ", dot, `${kind} ${tokens.toLocaleString("en")}`);
  }
  if (turn.cached) made.append(` · cached ${turn.cached.toLocaleString("en")}`);
  if (turn.dropped) made.append(` · left out ${turn.dropped.toLocaleString("en")}`);
  for (const event of turn.events) made.append(` · ${event}`);
  if (turn.mood && turn.mood !== "neutral") made.append(` · mood ${turn.mood}`);
  if (turn.error) made.append(` · ${turn.error}`);
  return made;
}

function shown(turn) {
  const item = document.createElement("li");
  item.className = "turn fresh";
  item.dataset.key = `${turn.conversation}#${turn.turn}`;
  const head = line("head", "");
  const link = document.createElement("a");
  link.href = turn.href;
  link.textContent = `${turn.conversation} · turn ${turn.turn}`;
  const when = document.createElement("span");
  when.className = "quiet";
  when.textContent = ` ${turn.user ?? ""} ${turn.state} ${(turn.at ?? "").slice(0, 19).replace("T", " ")}`;
  head.append(link, when);
  item.append(head, line("asked", turn.query), line("answered", turn.reply), facts(turn));
  return item;
}

const source = new EventSource("/page/live");
source.addEventListener("turn", (event) => {
  const turn = JSON.parse(event.data);
  const item = shown(turn);
  const before = [...list.children].find((each) => each.dataset.key === item.dataset.key);
  if (before) {
    const focused = before.contains(document.activeElement);
    before.replaceWith(item);
    if (focused) item.querySelector("a").focus();
  } else {
    list.prepend(item);
    document.getElementById("welcome")?.remove();
  }
  while (list.children.length > MOST) list.lastElementChild.remove();
  state.textContent = `Watching: ${turn.conversation} turn ${turn.turn} ${turn.state}.`;
});
source.addEventListener("open", () => { state.textContent = "Watching: new turns appear here as they come."; });
source.addEventListener("error", () => { state.textContent = "The server does not answer; trying again."; });
