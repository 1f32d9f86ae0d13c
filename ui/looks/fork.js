// The fork viewer: a token of the text is chosen by click, tap or key, and the panel under it says what both lanes made of it.
const ANY = ".fork-text [role=option]";
const parsed = new WeakMap();

const rowsOf = (text) => {
  if (!parsed.has(text)) parsed.set(text, JSON.parse(text.dataset.rows));
  return parsed.get(text);
};

// Tab enters the text once, where the reader was last.
const standOn = (token) => {
  token.parentElement.querySelectorAll('[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
  token.tabIndex = 0;
  token.focus();
  token.parentElement.dataset.read = ""; // from now on the panel stays in view
  token.scrollIntoView({block: "nearest"}); // and not before the token: its margin is for that
};

const choose = (token) => {
  const text = token.parentElement;
  text.querySelectorAll('[aria-selected="true"]').forEach((other) => other.setAttribute("aria-selected", "false"));
  token.setAttribute("aria-selected", "true");
  const row = rowsOf(text)[Array.prototype.indexOf.call(text.children, token)];
  text.parentElement.querySelectorAll(".fork-panel [data-slot]").forEach((slot, place) => (slot.textContent = row[place]));
};

// The nearest token of the line above (step -1) or below (step 1).
const beyond = (token, step) => {
  const boxOf = (each) => each.getClientRects()[0] ?? each.getBoundingClientRect();
  const next = (each) => (step > 0 ? each.nextElementSibling : each.previousElementSibling);
  const from = boxOf(token);
  let best = token;
  let line = null;
  for (let each = next(token); each; each = next(each)) {
    const box = boxOf(each);
    if (Math.abs(box.top - from.top) < from.height / 2) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > from.height / 2) break;
    if (best === token || Math.abs(box.left - from.left) < Math.abs(boxOf(best).left - from.left)) best = each;
  }
  return best;
};

const goal = (token, key) => {
  const text = token.parentElement;
  const back = getComputedStyle(text).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
  if (key === "Home") return text.firstElementChild;
  if (key === "End") return text.lastElementChild;
  if (key === "ArrowUp" || key === "ArrowDown") return beyond(token, key === "ArrowDown" ? 1 : -1);
  if (key === "ArrowLeft" || key === "ArrowRight") return key === back ? token.previousElementSibling : token.nextElementSibling;
  return null;
};

document.addEventListener("click", (event) => {
  const token = event.target.closest?.(ANY);
  if (!token) return;
  standOn(token);
  choose(token);
});

document.addEventListener("keydown", (event) => {
  const token = event.target.closest?.(ANY);
  if (!token || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" || event.key === " ") choose(token);
  else if (/^(Arrow|Home$|End$)/.test(event.key)) standOn(goal(token, event.key) ?? token);
  else return;
  event.preventDefault();
});
