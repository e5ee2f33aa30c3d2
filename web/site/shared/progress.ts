/** How far loading is, in words and as a bar. */

import type { Progress } from '../../src/module';
import { byId, bytes } from './dom';

/** For `onProgress` of `Module.load`. */
export function watch(): (progress: Progress) => void {
  const bar = byId('progress', HTMLProgressElement);
  const status = byId('status');
  let told = '';
  return ({ stage, loaded, total }) => {
    if (total > 0) bar.value = Math.min(1, loaded / total);
    else bar.removeAttribute('value');
    // A screen reader reads every change: tenths are enough.
    const tenth = total > 0 ? Math.floor((10 * loaded) / total) : 0;
    const key = `${stage} ${tenth}`;
    if (key === told) return;
    told = key;
    status.textContent = words(stage, loaded, total);
  };
}

function words(stage: Progress['stage'], loaded: number, total: number): string {
  const of = total > 0 ? ` of ${stage === 'kernels' ? total : bytes(total)}` : '';
  switch (stage) {
    case 'download':
      return `Fetching the model: ${bytes(loaded)}${of}`;
    case 'kernels':
      return `Preparing the GPU: ${loaded}${of} kernels`;
    case 'weights':
      return `Filling the GPU: ${bytes(loaded)}${of}`;
    case 'ready':
      return 'Ready.';
  }
}
