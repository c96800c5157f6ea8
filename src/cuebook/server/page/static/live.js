// Show live turns: each event holds one turn or the totals. Insert everything as text, never as HTML.
const list = document.getElementById("turns");
const state = document.getElementById("state");
const MAX_TURNS = 60;
const SVG = "http://www.w3.org/2000/svg";

function element(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text) node.textContent = text;
  return node;
}

function svgElement(tag, values, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  if (text) node.append(svgElement("title", {})), (node.firstChild.textContent = text);
  return node;
}

function bar(turn) {
  const picture = svgElement("svg", { class: "bar slim", width: "100%", height: 16, "aria-hidden": "true" });
  for (const { kind, tokens, x, width } of turn.bar) {
    const values = { class: `block kind-${kind}`, x: `${x}%`, y: 5, width: `${width}%`, height: 11 };
    picture.append(svgElement("rect", values, `${kind}: ${tokens.toLocaleString("en")} tokens`));
  }
  if (turn.cached) picture.append(svgElement("line", { class: "cached", x1: 0, x2: `${turn.cached}%`, y1: 2, y2: 2 }));
  return picture;
}

function facts(turn) {
  const line = element("p", "facts");
  for (const { kind, tokens } of turn.bar) line.append(element("span", `dot kind-${kind}`), `${kind} ${tokens.toLocaleString("en")} · `);
  line.append(turn.facts.join(" · "));
  return line;
}

function turnItem(turn) {
  const item = element("li", `turn fresh ${turn.state}`);
  item.dataset.key = turn.key;
  const head = element("p", "head");
  const link = element("a", "", turn.name);
  link.href = turn.href;
  head.append(link, " ", element("span", `state state-${turn.state}`, turn.state), " ", element("span", "quiet", turn.when));
  item.append(head, element("p", "query", turn.query), element("p", "answer", turn.reply), bar(turn), facts(turn));
  return item;
}

function showTurn(turn) {
  const item = turnItem(turn);
  const before = [...list.children].find((each) => each.dataset.key === item.dataset.key);
  if (before) {
    const focused = before.contains(document.activeElement);
    item.classList.remove("fresh");
    before.replaceWith(item);
    if (focused) item.querySelector("a").focus();
  } else {
    list.prepend(item);
    document.getElementById("welcome")?.remove();
    document.querySelector(".figures").hidden = false;
  }
  while (list.children.length > MAX_TURNS) list.lastElementChild.remove();
}

const source = new EventSource("/page/live");
source.addEventListener("turn", (event) => {
  const turn = JSON.parse(event.data);
  showTurn(turn);
  state.textContent = `Connected: ${turn.name} ${turn.state}.`;
});
source.addEventListener("sums", (event) => {
  const sums = JSON.parse(event.data);
  for (const each of document.querySelectorAll("[data-sum]")) each.textContent = sums[each.dataset.sum];
  document.getElementById("unreachable").hidden = !sums.unreachable;
  document.getElementById("part").setAttribute("width", `${sums.part}%`);
});
source.addEventListener("open", () => { state.textContent = "Connected: new turns appear here as they arrive."; });
source.addEventListener("error", () => {
  const ended = source.readyState === EventSource.CLOSED;
  state.textContent = ended
    ? "Disconnected: too many live views are open, or the API key is no longer valid. Reload to try again."
    : "Connection lost. Reconnecting…";
});

for (const each of document.querySelectorAll(".copied")) {
  const button = element("button", "small", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(each.querySelector("pre").textContent);
    button.textContent = "Copied";
  });
  each.append(button);
}
