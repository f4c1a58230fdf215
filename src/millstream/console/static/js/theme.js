// The switch of colours: as the system says until somebody chooses.

const order = [null, "dark", "light"];
const named = { null: "as the system", dark: "dark", light: "light" };

function chosen() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function show() {
  const theme = chosen();
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.getElementById("theme").title = `Colours: ${named[theme]} (t)`;
}

export function nextTheme() {
  const theme = order[(order.indexOf(chosen()) + 1) % order.length];
  try {
    if (theme) localStorage.setItem("theme", theme);
    else localStorage.removeItem("theme");
  } catch { /* storage may be forbidden: the choice then lasts until the page is left */ }
  show();
  return named[theme];
}

export function startTheme() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
