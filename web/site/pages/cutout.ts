/** Takes the background away. */

import {
  asTensor,
  cutOut,
  type ImageSpec,
  type Pixels,
  pictureTensor,
  show,
  tensorMask,
  toBlob,
} from '../../src/image';
import { type CardSize, portOf } from '../../src/model_card';
import { byId } from '../shared/dom';
import { startPage } from '../shared/page';
import { offerDownload, option, PictureInput } from '../shared/picture_input';

await startPage('cutout', (page) => {
  const input = new PictureInput(page);
  const port = portOf(page.card, 'inputs');
  const spec = port.image as ImageSpec;
  const { min, max } = port.dims[2] as CardSize;
  const side = byId('side', HTMLSelectElement);
  side.append(option(String(max), 'fine'), option('224', 'middle'));
  side.append(option(String(min), 'coarse, and faster'));
  const behind = byId('behind', HTMLSelectElement);
  let last: { picture: Pixels; mask: Pixels } | undefined;

  async function draw(): Promise<void> {
    if (!last) return;
    const { picture, mask } = last;
    const colour = behind.value.includes(',')
      ? (behind.value.split(',').map(Number) as [number, number, number])
      : undefined;
    const pixels = behind.value === 'mask' ? mask : await cutOut(picture, mask, colour);
    const canvas = byId('cut', HTMLCanvasElement);
    show(canvas, pixels);
    canvas.setAttribute('aria-label', 'What was cut out');
    offerDownload(byId('save', HTMLAnchorElement), await toBlob(pixels));
    byId('result').hidden = false;
  }

  behind.addEventListener('change', () => page.attempt(draw));
  const load = page.module();
  page.onRun(async (signal) => {
    const picture = await input.picture();
    const module = await load(signal);
    const size = Number(side.value);
    const mask = await page.timed(async () => {
      const fitted = { ...spec, width: size, height: size };
      const [result] = await module.forward([await pictureTensor(picture, fitted)]);
      return tensorMask(asTensor(result));
    });
    last = { picture, mask };
    await draw();
  });
});
