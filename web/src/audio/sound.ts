/** Sound from files and from a microphone, through WebAudio. */

import { WebGPUError } from '../errors';
import type { Sound } from './features';

/** The sound of a file in one channel, at the rate that a model wants. */
export async function decodeSound(
  file: Blob | ArrayBuffer,
  rate = 16000,
): Promise<Sound> {
  const bytes = file instanceof Blob ? await file.arrayBuffer() : file.slice(0);
  // A context that plays nothing: it decodes, and takes the sound to its own rate.
  const context = new OfflineAudioContext(1, 1, rate);
  let buffer: AudioBuffer;
  try {
    buffer = await context.decodeAudioData(bytes);
  } catch (error) {
    const what = file instanceof Blob && file.type ? file.type : 'other bytes';
    throw new WebGPUError(
      'InvalidArgument',
      `decodeSound: the file must be sound that this browser reads, got ${what};` +
        ' try WAV or MP3',
      { cause: error },
    );
  }
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, channel) =>
    buffer.getChannelData(channel),
  );
  return { samples: mix(channels), rate };
}

/** The mean of all channels. */
export function mix(channels: readonly Float32Array[]): Float32Array {
  const [first] = channels;
  if (!first) return new Float32Array(0);
  if (channels.length === 1) return first.slice();
  const result = new Float32Array(first.length);
  for (const channel of channels) {
    for (let index = 0; index < result.length; index++) {
      result[index] =
        (result[index] as number) + (channel[index] ?? 0) / channels.length;
    }
  }
  return result;
}

/** Sound as a WAV file of 16 bits, such as one to keep. */
export function toWav(sound: Sound): Blob {
  const { samples, rate } = sound;
  const bytes = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const text = (at: number, value: string) => {
    for (let index = 0; index < value.length; index++) {
      bytes.setUint8(at + index, value.charCodeAt(index));
    }
  };
  text(0, 'RIFF');
  bytes.setUint32(4, 36 + samples.length * 2, true);
  text(8, 'WAVEfmt ');
  bytes.setUint32(16, 16, true);
  bytes.setUint16(20, 1, true);
  bytes.setUint16(22, 1, true);
  bytes.setUint32(24, rate, true);
  bytes.setUint32(28, rate * 2, true);
  bytes.setUint16(32, 2, true);
  bytes.setUint16(34, 16, true);
  text(36, 'data');
  bytes.setUint32(40, samples.length * 2, true);
  samples.forEach((value, index) => {
    const clamped = Math.min(1, Math.max(-1, value));
    bytes.setInt16(44 + index * 2, Math.round(clamped * 32767), true);
  });
  return new Blob([bytes.buffer], { type: 'audio/wav' });
}
