/** In a frame: what the bench page calls. Each frame has a runtime of its own. */

import type { MakeEngine } from './engine';
import { makeOrt } from './ort';
import { makeOurs } from './ours';
import type { EngineName } from './results';

export interface BenchFrame extends Window {
  engines?: Record<EngineName, MakeEngine>;
}

(window as BenchFrame).engines = { ours: makeOurs, ort: makeOrt };
parent.dispatchEvent(new CustomEvent('bench-frame', { detail: window }));
