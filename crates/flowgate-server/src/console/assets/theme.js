// Before anything is drawn: the theme that was chosen, if one was.
try {
  const chosen = localStorage.getItem("flowgate-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing follows the system.
}
