/** A microphone as sound in memory: what was said until it is stopped. */

import { WebGPUError } from '../errors';
import { padOrTrim, type Sound } from './features';
import { mix } from './sound';

// Runs on the sound's own thread: hands every block of samples to the page.
const WORKLET = `registerProcessor('take', class extends AudioWorkletProcessor {
  process([channels]) {
    if (channels.length) this.port.postMessage(channels.map((c) => c.slice()));
    return true;
  }
});`;

/** Records until `stop`. */
export class Microphone {
  private readonly blocks: Float32Array[] = [];
  private length = 0;

  private constructor(
    private readonly stream: MediaStream,
    private readonly context: AudioContext,
    private readonly limit: number,
  ) {}

  /**
   * Asks for the microphone and starts.
   * @param options.seconds at most so many of the last seconds are kept
   */
  static async open(options: { seconds?: number } = {}): Promise<Microphone> {
    if (!navigator.mediaDevices?.getUserMedia) {
      throw new WebGPUError(
        'AccessFailed',
        'Microphone: the page must be served by https or localhost, got neither',
      );
    }
    let stream: MediaStream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch (error) {
      throw new WebGPUError('AccessFailed', refusal('microphone', error), {
        cause: error,
      });
    }
    const context = new AudioContext();
    const limit = (options.seconds ?? 60) * context.sampleRate;
    const result = new Microphone(stream, context, limit);
    try {
      await result.start();
      return result;
    } catch (error) {
      await result.close();
      throw error;
    }
  }

  /** The last samples at another rate, for a display while it records. */
  async latest(count: number, rate = 16000): Promise<Float32Array> {
    const needed = Math.ceil((count * this.context.sampleRate) / rate);
    const blocks: Float32Array[] = [];
    let found = 0;
    for (let index = this.blocks.length - 1; index >= 0 && found < needed; index--) {
      const block = this.blocks[index] as Float32Array;
      blocks.unshift(block);
      found += block.length;
    }
    const samples = join(blocks, found).slice(-needed);
    return padOrTrim(await resample(samples, this.context.sampleRate, rate), count);
  }

  /** Ends the recording and gives it, at the rate that a model wants. */
  async stop(rate = 16000): Promise<Sound> {
    const from = this.context.sampleRate;
    await this.close();
    return {
      samples: await resample(join(this.blocks, this.length), from, rate),
      rate,
    };
  }

  /** Ends the recording, and the light beside the camera goes out. */
  async close(): Promise<void> {
    for (const track of this.stream.getTracks()) track.stop();
    if (this.context.state !== 'closed') await this.context.close();
  }

  private async start(): Promise<void> {
    const url = URL.createObjectURL(new Blob([WORKLET], { type: 'text/javascript' }));
    try {
      await this.context.audioWorklet.addModule(url);
    } finally {
      URL.revokeObjectURL(url);
    }
    const node = new AudioWorkletNode(this.context, 'take', { numberOfOutputs: 0 });
    node.port.onmessage = (event: MessageEvent<Float32Array[]>) => {
      const block = mix(event.data);
      this.blocks.push(block);
      this.length += block.length;
      while (this.length - (this.blocks[0]?.length ?? 0) > this.limit) {
        this.length -= this.blocks.shift()?.length ?? 0;
      }
    };
    this.context.createMediaStreamSource(this.stream).connect(node);
    await this.context.resume();
  }
}

/** Why a device was not given, in words that say what to do. */
export function refusal(device: string, error: unknown): string {
  const name = error instanceof Error ? error.name : '';
  if (name === 'NotAllowedError') {
    return `the ${device} must be allowed, got a refusal; allow it in the address bar`;
  }
  if (name === 'NotFoundError') {
    return `a ${device} must be there, got none; connect one, or choose a file`;
  }
  return `the ${device} must start, got ${error instanceof Error ? error.message : error}`;
}

/** Sound at another rate, by the browser's own filter. */
export async function resample(
  samples: Float32Array,
  from: number,
  to: number,
): Promise<Float32Array> {
  if (from === to || samples.length === 0) return samples;
  const length = Math.max(1, Math.round((samples.length * to) / from));
  const context = new OfflineAudioContext(1, length, to);
  const buffer = context.createBuffer(1, samples.length, from);
  buffer.getChannelData(0).set(samples);
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
}

function join(blocks: readonly Float32Array[], length: number): Float32Array {
  const result = new Float32Array(length);
  let at = 0;
  for (const block of blocks) {
    result.set(block, at);
    at += block.length;
  }
  return result;
}
