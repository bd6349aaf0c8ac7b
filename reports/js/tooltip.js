// Shows the tooltip of a mark next to the pointer.
function showTooltip(handler, event, item, value) {
  const box = document.getElementById('tooltip');
  box.hidden = value === null || value === undefined || value === '';
  if (box.hidden) return;
  const { title, where, ...rest } = typeof value === 'object' ? value : { title: String(value) };
  box.replaceChildren(
    element('strong', {}, title), where ? element('div', { class: 'tooltip-where' }, where) : '',
    element('dl', {}, Object.entries(rest).filter(([, text]) => text !== null && text !== undefined && text !== '')
      .map(([name, text]) => [element('dt', {}, name), element('dd', {}, String(text))]).flat()));
  const edge = 12;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(edge, Math.min(event.clientX + edge, innerWidth - width - edge)) + 'px';
  box.style.top = (event.clientY + edge + height > innerHeight ? Math.max(edge, event.clientY - height - edge) : event.clientY + edge) + 'px';
}
