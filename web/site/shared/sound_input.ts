/** Sound from a sample, a file or the microphone. */

import { decodeSound, Microphone, type Sound, toWav } from '../../src/audio';
import { WebGPUError } from '../../src/errors';
import { byId } from './dom';
import { acceptDrops } from './drop';
import type { Page } from './page';
import { showSamples } from './samples';

const RATE = 16000;

/** What is chosen; the page asks for it when its button is pressed. */
export class SoundInput {
  private sound: Sound | undefined;
  private taken = 0;
  private microphone: Microphone | undefined;
  private readonly player = byId('player', HTMLAudioElement);
  private readonly button = byId('microphone', HTMLButtonElement);

  constructor(private readonly page: Page) {
    const samples = showSamples(
      byId('samples'),
      page.folder,
      page.card.samples,
      (file) => this.take(file),
      (error) => page.fail(error),
    );
    const file = byId('file', HTMLInputElement);
    const choose = (chosen: File) => {
      samples.clear();
      page.attempt(() => this.take(chosen));
    };
    file.addEventListener('change', () => {
      const [chosen] = file.files ?? [];
      if (chosen) choose(chosen);
      // The same file may be chosen again.
      file.value = '';
    });
    acceptDrops(page.form, (each) => /^(audio|video)\//.test(each.type), choose);
    this.button.addEventListener('click', () => {
      samples.clear();
      page.attempt(() => (this.microphone ? this.finish() : this.record()));
    });
  }

  /** The sound that was chosen; with the microphone on, all until now. */
  async samples(): Promise<Float32Array> {
    if (this.microphone) await this.finish();
    if (!this.sound || this.sound.samples.length === 0) {
      throw new WebGPUError(
        'InvalidArgument',
        'a sound must be chosen or recorded, got none',
      );
    }
    return this.sound.samples;
  }

  private async take(file: Blob): Promise<void> {
    const turn = ++this.taken;
    const sound = await decodeSound(file, RATE);
    if (turn !== this.taken) return;
    this.sound = sound;
    this.play(file);
  }

  private async record(): Promise<void> {
    this.microphone = await Microphone.open();
    this.button.setAttribute('aria-pressed', 'true');
    this.button.textContent = 'Stop recording';
    this.page.say('Recording. The last minute is kept.');
  }

  private async finish(): Promise<void> {
    const { microphone } = this;
    this.microphone = undefined;
    this.button.setAttribute('aria-pressed', 'false');
    this.button.textContent = 'Record';
    if (!microphone) return;
    this.sound = await microphone.stop(RATE);
    this.play(toWav(this.sound));
    const seconds = this.sound.samples.length / RATE;
    this.page.say(`Recorded ${seconds.toFixed(1)} seconds.`);
  }

  private play(file: Blob): void {
    if (this.player.src.startsWith('blob:')) URL.revokeObjectURL(this.player.src);
    this.player.src = URL.createObjectURL(file);
  }
}
