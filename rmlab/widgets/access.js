// What ipywidgets leaves out for the keyboard, the screen reader and a narrow page. Draws nothing.
const TYPED = "textarea, select, input:not([type=checkbox]):not([type=radio]), [contenteditable=true]";
const STEPS = { n: ".rmlab-next", p: ".rmlab-previous" };

function nameHandles(root) {
  for (const slider of root.querySelectorAll(".widget-hslider")) {
    const name = slider.querySelector(".widget-label")?.textContent.trim() || "slider";
    const handles = [...slider.querySelectorAll(".noUi-handle")];
    handles.forEach((handle, number) => {
      const label = handles.length < 2 ? name : `${["lowest", "highest"][number]} ${name.toLowerCase()}`;
      if (handle.getAttribute("aria-label") !== label) handle.setAttribute("aria-label", label);
    });
  }
  for (const box of root.querySelectorAll("textarea:not([dir]), input[type=text]:not([dir])")) box.dir = "auto";
}

// n and p go to the next and the previous prompt, wherever in the explorer the focus is but in a text box.
function step(event, root) {
  const target = STEPS[event.key];
  if (!target || event.ctrlKey || event.altKey || event.metaKey || event.target.closest(TYPED)) return;
  const button = root.querySelector(target);
  if (!button) return;
  event.preventDefault();
  if (!button.disabled) button.click();
  // What had the focus is drawn anew and would lose it.
  if (event.target.closest(".widget-html")) button.focus({ preventScroll: true });
}

// Where the answers stand below the list, a prompt that is opened brings them into sight.
function reveal(event, root) {
  const main = root.querySelector(".rmlab-main");
  if (!main || !event.target.closest(".rmlab-list button")) return;
  const top = main.getBoundingClientRect().top;
  if (top >= 0 && top < window.innerHeight * 0.6) return;
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  main.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

function render({ model, el }) {
  const gone = new AbortController();
  const observer = new MutationObserver(() => nameHandles(el.closest(".rmlab") ?? el));
  const inside = (act) => (event) => {
    const root = el.closest(".rmlab");
    if (root?.contains(event.target)) act(event, root);
  };
  document.addEventListener("keydown", inside(step), { signal: gone.signal });
  document.addEventListener("click", inside(reveal), { signal: gone.signal });
  const start = () => {
    const root = el.closest(".rmlab");
    if (!root) return gone.signal.aborted || requestAnimationFrame(start);
    nameHandles(root);
    observer.observe(root, { childList: true, subtree: true });
  };
  start();
  return () => {
    gone.abort();
    observer.disconnect();
  };
}

export default { render };
