// A worker that ends in the middle of a call.
import { serveWorker } from '/dist/executorch-webgpu.js';

addEventListener('message', (event) => {
  if (event.data.kind === 'stats') {
    event.stopImmediatePropagation();
    close();
  }
});
await serveWorker();
