/**
 * Sound for models: files and the microphone to samples, samples to what models take.
 * @packageDocumentation
 */

export {
  type FrameSpec,
  frames,
  logMel,
  type MelSpec,
  normalize,
  padOrTrim,
  type Sound,
  WHISPER_MEL,
} from './features';
export { Microphone, refusal, resample } from './microphone';
export {
  crepePitch,
  detectPitch,
  noteOf,
  type Pitch,
  type PitchSpec,
} from './pitch';
export { decodeSound, mix, toWav } from './sound';
export {
  cutSpeech,
  paddedLength,
  readTranscriberConfig,
  Transcriber,
  type TranscriberConfig,
} from './transcriber';
