/** A picture from a sample, a file, the clipboard or the camera. */

import { refusal } from '../../src/audio';
import { WebGPUError } from '../../src/errors';
import { type Pixels, readPixels, show } from '../../src/image';
import { byId, make } from './dom';
import { acceptDrops } from './drop';
import type { Page } from './page';
import { showSamples } from './samples';

/** What is chosen; the page asks for it when its button is pressed. */
export class PictureInput {
  private pixels: Pixels | undefined;
  private taken = 0;
  private readonly canvas = byId('chosen', HTMLCanvasElement);
  private readonly video = byId('video', HTMLVideoElement);
  private readonly camera = byId('camera', HTMLButtonElement);
  private stream: MediaStream | undefined;
  /** Told when another picture was chosen. */
  onChange: (() => void) | undefined;

  constructor(private readonly page: Page) {
    const samples = showSamples(
      byId('samples'),
      page.folder,
      page.card.samples,
      (file, name) => this.take(file, name),
      (error) => page.fail(error),
    );
    const file = byId('file', HTMLInputElement);
    const choose = (chosen: File) => {
      samples.clear();
      page.attempt(() => this.take(chosen, chosen.name));
    };
    file.addEventListener('change', () => {
      const [chosen] = file.files ?? [];
      if (chosen) choose(chosen);
      // The same file may be chosen again.
      file.value = '';
    });
    acceptDrops(page.form, (each) => each.type.startsWith('image/'), choose);
    this.camera.addEventListener('click', () => {
      samples.clear();
      page.attempt(() => (this.stream ? this.snap() : this.open()));
    });
  }

  /** The picture that was chosen; with the camera open, what it sees now. */
  async picture(): Promise<Pixels> {
    if (this.stream) await this.snap();
    if (!this.pixels) {
      throw new WebGPUError('InvalidArgument', 'a picture must be chosen, got none');
    }
    return this.pixels;
  }

  private async take(file: Blob, name: string): Promise<void> {
    const turn = ++this.taken;
    const pixels = await readPixels(file);
    if (turn !== this.taken) return;
    this.close();
    this.use(pixels, name);
  }

  private use(pixels: Pixels, name: string): void {
    this.pixels = pixels;
    show(this.canvas, pixels);
    this.canvas.hidden = false;
    const label = `${name}, ${pixels.width} by ${pixels.height} pixels`;
    this.canvas.setAttribute('aria-label', label);
    this.onChange?.();
  }

  private async open(): Promise<void> {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new WebGPUError(
        'AccessFailed',
        'the camera needs a page from https or localhost, got neither',
      );
    }
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({
        video: { facingMode: 'environment' },
      });
    } catch (error) {
      throw new WebGPUError('AccessFailed', refusal('camera', error), { cause: error });
    }
    this.video.srcObject = this.stream;
    this.video.hidden = false;
    this.canvas.hidden = true;
    await this.video.play();
    this.camera.textContent = 'Take the picture';
    this.page.say('The camera is on. Take the picture, or start at once.');
  }

  private async snap(): Promise<void> {
    const pixels = await readPixels(this.video);
    this.close();
    this.use(pixels, 'From the camera');
  }

  private close(): void {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = undefined;
    this.video.hidden = true;
    this.camera.textContent = 'Camera';
  }
}

/** Lets a link save a picture; what the link had before is freed. */
export function offerDownload(link: HTMLAnchorElement, file: Blob): void {
  if (link.href.startsWith('blob:')) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(file);
}

/** An option of a select. */
export function option(value: string, text: string): HTMLOptionElement {
  return make('option', { value }, text);
}
