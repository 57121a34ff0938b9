// Runs before anything is painted: the theme that the reader has chosen, if any.
try {
  const theme = localStorage.getItem("isobar-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme it is, then.
}
