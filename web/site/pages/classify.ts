/** Names what is in a picture. */

import { asTensor, type ImageSpec, pictureTensor } from '../../src/image';
import { fetchFile, portOf } from '../../src/model_card';
import { largest } from '../../src/text/embedding';
import { bars, byId } from '../shared/dom';
import { startPage } from '../shared/page';
import { PictureInput } from '../shared/picture_input';

await startPage('classify', async (page) => {
  const input = new PictureInput(page);
  const spec = portOf(page.card, 'inputs').image as ImageSpec;
  const file = String(portOf(page.card, 'outputs').labels);
  const labels = (await (await fetchFile(new URL(file, page.folder))).text()).split(
    '\n',
  );
  const load = page.module();
  page.onRun(async (signal) => {
    const picture = await input.picture();
    const module = await load(signal);
    const chances = await page.timed(async () => {
      const [result] = await module.forward([await pictureTensor(picture, spec)]);
      return (await asTensor(result).data()) as Float32Array;
    });
    bars(
      byId('classes'),
      largest(chances, 5).map(({ index, value }) => ({
        text: labels[index] ?? `class ${index}`,
        part: value,
        shown: `${(value * 100).toFixed(1)} %`,
        value,
      })),
    );
    byId('result').hidden = false;
  });
});
