/** The script of a worker that `createWorker` starts. */

import { serveWorker } from '../index';

await serveWorker();
