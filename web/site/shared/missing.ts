/** What to do where something is missing: WebGPU, or the model. */

import { make } from './dom';

/** Why a page cannot have a GPU, or undefined if it can. */
export async function findAdapter(): Promise<GPUAdapter | undefined> {
  const { gpu } = navigator as { gpu?: GPU };
  return (
    (await gpu?.requestAdapter({ powerPreference: 'high-performance' })) ?? undefined
  );
}

/** What a visitor without WebGPU can do. */
export function showNoGpu(place: HTMLElement): void {
  const advice = !isSecureContext
    ? ['Open this page by https, or from localhost: browsers give no GPU to others.']
    : 'gpu' in navigator && navigator.gpu
      ? [
          'Switch on hardware acceleration in the browser’s settings, and start it again.',
          'Update the graphics driver.',
          'In Chrome on Linux, chrome://flags/#enable-unsafe-webgpu switches WebGPU on.',
        ]
      : [
          'Use a current browser: Chrome or Edge from 113 on, Safari 26, Firefox from 141 on.',
          'On Android, Chrome from 121 on; on an iPhone or iPad, iOS 26.',
          'In Chrome on Linux, chrome://flags/#enable-unsafe-webgpu switches WebGPU on.',
        ];
  const reason =
    'gpu' in navigator && navigator.gpu
      ? 'This browser has WebGPU, but gave no GPU.'
      : 'This browser has no WebGPU, or gives it to other pages only.';
  show(place, 'The models need WebGPU', reason, advice);
}

/** What to do where the models were not exported. */
export function showNoModel(place: HTMLElement, name: string): void {
  show(place, 'The model is not here yet', 'It is exported by PyTorch, once:', [
    make('code', {}, `python examples/gallery build/gallery ${name}`),
    'Then serve this site with the folder that it wrote: ',
    make('code', {}, 'python -m executorch_webgpu serve --gallery build/gallery'),
  ]);
}

function show(
  place: HTMLElement,
  title: string,
  reason: string,
  advice: readonly (Node | string)[],
): void {
  place.replaceChildren(
    make('h2', {}, title),
    make('p', {}, reason),
    make('ul', {}, ...advice.map((each) => make('li', {}, each))),
  );
  place.hidden = false;
}
