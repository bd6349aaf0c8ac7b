// Light or dark: what the reader asked for here, else what the system says.
function currentTheme() {
  const asked = document.documentElement.dataset.theme;
  if (asked) return asked;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}
