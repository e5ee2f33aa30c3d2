/** Draws a picture at four times its width and height. */

import { enlarge, type ImageSpec, show, type TileSpec, toBlob } from '../../src/image';
import { portOf } from '../../src/model_card';
import { byId } from '../shared/dom';
import { startPage } from '../shared/page';
import { offerDownload, PictureInput } from '../shared/picture_input';

// More would be a picture that no screen shows, after minutes of work.
const MOST_PIXELS = 512 * 512;

await startPage('enlarge', (page) => {
  const input = new PictureInput(page);
  const port = portOf(page.card, 'inputs');
  const load = page.module();
  page.onRun(async (signal) => {
    const picture = await input.picture();
    const { width, height } = picture;
    if (width * height > MOST_PIXELS) {
      throw new RangeError(
        `the picture must have at most ${MOST_PIXELS} pixels, such as 512 by 512, got` +
          ` ${width} by ${height}; choose a smaller one, or a part of it`,
      );
    }
    const module = await load(signal);
    const before = byId('before', HTMLCanvasElement);
    const after = byId('after', HTMLCanvasElement);
    show(before, picture);
    const large = await page.timed(() =>
      enlarge(module, picture, port.image as ImageSpec, port.tile as TileSpec, {
        signal,
        onTile: (done, total, pixels) => {
          page.progress(done / total);
          page.say(`Tile ${done} of ${total}`);
          show(after, pixels);
          byId('result').hidden = false;
        },
      }),
    );
    after.setAttribute('aria-label', `The picture, ${large.width} by ${large.height}`);
    offerDownload(byId('save', HTMLAnchorElement), await toBlob(large));
  });
});
