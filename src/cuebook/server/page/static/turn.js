// The prompt bar shows the name of the hovered block; arrow keys move between blocks, n and p between turns.
const bar = document.querySelector(".bar");
const blockName = document.getElementById("block-name");
const links = bar ? [...bar.querySelectorAll("a")] : [];
let selected = -1;

function select(number) {
  selected = Math.max(0, Math.min(number, links.length - 1));
  for (const [each, link] of links.entries()) link.querySelector(".block").classList.toggle("here", each === selected);
  blockName.textContent = links[selected].querySelector("title").textContent;
}

function open(number) {
  const block = document.querySelector(links[number].getAttribute("href"));
  for (const each of document.querySelectorAll(".blocks .here")) each.classList.remove("here");
  block.open = true;
  block.classList.add("here");
  block.querySelector("summary").focus({ preventScroll: true });
  block.scrollIntoView({ block: "nearest" });
}

if (links.length) {
  bar.tabIndex = 0;
  const hint = "Point at a block or use the arrow keys. Press Enter to show its text.";
  blockName.textContent = hint;
  for (const [number, link] of links.entries()) {
    link.addEventListener("pointerenter", () => select(number));
    link.addEventListener("click", (event) => { event.preventDefault(); open(number); });
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) select(selected + step);
    else if (event.key === "Enter" && selected >= 0) open(selected);
    else return;
    event.preventDefault();
  });
}

document.addEventListener("keydown", (event) => {
  const rel = { n: "next", p: "prev" }[event.key];
  if (!rel || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  document.querySelector(`a[rel="${rel}"]`)?.click();
});

// Poll a running turn until it ends, then reload the page, unless a form has the focus.
if (document.querySelector(".facts .state-running")) {
  setInterval(async () => {
    if (document.activeElement.closest("form")) return;
    const answer = await fetch(location.href).catch(() => null);
    if (!answer?.ok) return;
    const now = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!now.querySelector(".facts .state-running")) location.reload();
  }, 1000);
}
