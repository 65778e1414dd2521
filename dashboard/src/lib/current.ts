// Where there are more places than fit, the current one is brought into view.

/** An attachment for a row that scrolls sideways: shows the entry that is marked as current. */
export function currentShown(row: HTMLElement): () => void {
  const show = () => {
    const here = row.querySelector<HTMLElement>('[aria-current]');
    if (!here || row.scrollWidth <= row.clientWidth) return;
    row.scrollLeft = here.offsetLeft - row.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
  };
  const changes = new MutationObserver(show);
  changes.observe(row, { attributes: true, subtree: true, attributeFilter: ['aria-current'] });
  show();
  return () => changes.disconnect();
}
