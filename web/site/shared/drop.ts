/** Files that are dropped on a panel, or pasted. */

/** Hands over the first file whose type or name fits. */
export function acceptDrops(
  panel: HTMLElement,
  fits: (file: File) => boolean,
  take: (file: File) => void,
): void {
  panel.addEventListener('dragover', (event) => {
    event.preventDefault();
    panel.classList.add('over');
  });
  panel.addEventListener('dragleave', () => panel.classList.remove('over'));
  panel.addEventListener('drop', (event) => {
    event.preventDefault();
    panel.classList.remove('over');
    takeFirst(event.dataTransfer);
  });
  document.addEventListener('paste', (event) => takeFirst(event.clipboardData));

  function takeFirst(data: DataTransfer | null): void {
    const file = [...(data?.files ?? [])].find(fits);
    if (file) take(file);
  }
}
