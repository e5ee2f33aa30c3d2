/** Files and frames for the engines: each engine of each model has a fresh frame. */

import { fetchCard, fetchFile, fetchJson, folderUrl } from '../../src/model_card';
import type { BenchCase, InputSpec } from './cases';
import type { Blobs, Engine } from './engine';
import type { BenchFrame } from './frame';
import type { EngineName, Runtimes } from './results';

/** What the site has of both runtimes, by `build_bench.mjs`. */
export async function fetchRuntimes(): Promise<Runtimes> {
  return (await fetchJson(pageUrl('runtimes/runtimes.json'))) as Runtimes;
}

function pageUrl(path: string): URL {
  return new URL(path, document.baseURI);
}

const blobs = new Map<string, Promise<Blob>>();

/** Fetches a file once. */
function blobOf(url: URL, signal: AbortSignal): Promise<Blob> {
  const known = blobs.get(url.href);
  if (known) return known;
  const made = fetchFile(url, signal).then((response) => response.blob());
  blobs.set(url.href, made);
  made.catch(() => blobs.delete(url.href));
  return made;
}

async function runtimeBlobs(
  runtimes: Runtimes,
  name: EngineName,
  signal: AbortSignal,
): Promise<Blobs> {
  const entries = runtimes[name].files.map(async ({ file }) => {
    const url = pageUrl(`runtimes/${file}`);
    return [file, await blobOf(url, signal)] as const;
  });
  return Object.fromEntries(await Promise.all(entries));
}

/** Engines for a model, each in a new frame; `close` removes the frames. */
export async function openEngines(
  bench: BenchCase,
  inputs: readonly InputSpec[],
  runtimes: Runtimes,
  signal: AbortSignal,
): Promise<{
  engines: Record<EngineName, Engine | { failed: string }>;
  close: () => void;
}> {
  const folder = folderUrl(`models/${bench.model}`);
  const card = await fetchCard(folder, signal);
  const files = { ours: card.program, ort: card.onnx };
  const frames: HTMLIFrameElement[] = [];
  const open = async (name: EngineName): Promise<Engine | { failed: string }> => {
    const file = files[name];
    if (!file) return { failed: 'the site has no ONNX file of this model' };
    const model = await blobOf(new URL(file.file, folder), signal);
    const runtime = await runtimeBlobs(runtimes, name, signal);
    const { frame, view } = await newFrame();
    frames.push(frame);
    const make = view.engines?.[name];
    if (!make) throw new Error(`the frame must have the engine ${name}, got none`);
    return make({ runtime, model }, inputs);
  };
  const engines = { ours: await open('ours'), ort: await open('ort') };
  blobs.clear();
  return {
    engines,
    close: () => {
      for (const frame of frames) frame.remove();
    },
  };
}

function newFrame(): Promise<{ frame: HTMLIFrameElement; view: BenchFrame }> {
  const frame = document.createElement('iframe');
  frame.title = 'A runtime that is measured';
  frame.hidden = true;
  const script = pageUrl('js/bench_frame.js').href;
  frame.srcdoc = `<!doctype html><script type="module" src="${script}"></script>`;
  return new Promise((resolve, reject) => {
    const here = (event: Event): void => {
      const view = (event as CustomEvent<BenchFrame>).detail;
      if (view !== frame.contentWindow) return;
      removeEventListener('bench-frame', here);
      resolve({ frame, view });
    };
    addEventListener('bench-frame', here);
    frame.addEventListener('error', () => reject(new Error('a frame did not load')));
    document.body.append(frame);
  });
}
