/** Pitch over time as a picture, and as the names of notes. */

import { noteOf, type Pitch } from '../../src/audio';

/** A frame below this has no pitch: silence, noise or speech without a voice. */
export const SURE = 0.5;
// Shorter ones are slides from one note to the next.
const LEAST_FRAMES = 3;

/** The notes one after the other. */
export function notesOf(frames: readonly Pitch[]): string[] {
  const result: string[] = [];
  let [current, length] = ['', 0];
  for (const { hertz, confidence } of frames) {
    const name = confidence >= SURE ? noteOf(hertz).name : '';
    length = name === current ? length + 1 : 1;
    current = name;
    if (name && length === LEAST_FRAMES) result.push(name);
  }
  return result;
}

/** Dots on lines for the notes, as in a score. */
export function drawPitch(
  canvas: HTMLCanvasElement,
  frames: readonly Pitch[],
  step: number,
): void {
  const ratio = devicePixelRatio;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext('2d');
  if (!context) return;
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const sure = frames
    .map(({ hertz }) => midi(hertz))
    .filter((_, at) => isSure(frames[at]));
  const low = Math.floor(Math.min(...sure, 60)) - 2;
  const high = Math.ceil(Math.max(...sure, 64)) + 2;
  const y = (note: number) =>
    height - 22 - ((note - low) / (high - low)) * (height - 34);
  const left = 40;
  const x = (index: number) =>
    left + (index / Math.max(1, frames.length)) * (width - left);

  context.font = `12px ${style.fontFamily}`;
  context.fillStyle = colour('--soft');
  context.strokeStyle = colour('--line');
  const gap = Math.max(1, Math.ceil((high - low) / 12));
  for (let note = low; note <= high; note += gap) {
    context.beginPath();
    context.moveTo(left, y(note));
    context.lineTo(width, y(note));
    context.stroke();
    context.fillText(noteOf(440 * 2 ** ((note - 69) / 12)).name, 4, y(note) + 4);
  }
  const seconds = frames.length * step;
  const tick = Math.max(0.5, Math.ceil(seconds / 6));
  for (let time = 0; time < seconds; time += tick) {
    context.fillText(`${time} s`, x(time / step), height - 4);
  }
  frames.forEach((frame, index) => {
    context.globalAlpha = isSure(frame) ? 1 : 0.15;
    context.fillStyle = colour('--accent');
    context.beginPath();
    context.arc(x(index), y(midi(frame.hertz)), 3.5, 0, 2 * Math.PI);
    context.fill();
  });
  context.globalAlpha = 1;
}

function midi(hertz: number): number {
  return 69 + 12 * Math.log2(hertz / 440);
}

function isSure(frame: Pitch | undefined): boolean {
  return (frame?.confidence ?? 0) >= SURE;
}
