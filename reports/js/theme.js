// Light or dark: the reader's choice on this page, otherwise the system's preference.
function currentTheme() {
  const asked = document.documentElement.dataset.theme;
  if (asked) return asked;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}
