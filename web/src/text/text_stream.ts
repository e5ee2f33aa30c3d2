/**
 * From tokens to text as it grows: a character may need several tokens, and the start of
 * a stop word must not be shown, so some of the text waits for the tokens after it.
 */

/** What turns tokens into text: a tokenizer's `decode`. */
export type Decode = (tokens: number[]) => string;

const UNFINISHED = '\ufffd';

/** Takes tokens one by one and gives the text that is certain by then. */
export class TextStream {
  /** True when a stop word was found; nothing behind it is given. */
  stopped = false;
  private readonly tokens: number[];
  // Tokens before `from` are only decoded to see how the next ones join them (spaces);
  // tokens before `upTo` have been given. So a long text costs no more per token.
  private from = 0;
  private upTo: number;
  private waiting = '';

  constructor(
    private readonly decode: Decode,
    private readonly stopWords: readonly string[] = [],
    /** Tokens that the text follows: whether it begins with a space may depend on them. */
    before: readonly number[] = [],
  ) {
    this.tokens = [...before];
    this.upTo = before.length;
  }

  /** The text that this token made certain; often empty. */
  push(token: number): string {
    this.tokens.push(token);
    const before = this.text(this.from, this.upTo);
    const after = this.text(this.from);
    if (after.endsWith(UNFINISHED) || after.length <= before.length) return '';
    this.from = this.upTo;
    this.upTo = this.tokens.length;
    return this.release(after.slice(before.length));
  }

  /** What still waits, when no token follows. */
  end(): string {
    if (this.stopped) return '';
    const before = this.text(this.from, this.upTo);
    const after = this.text(this.from);
    this.upTo = this.tokens.length;
    const text = this.release(after.slice(before.length));
    const rest = this.stopped ? '' : this.waiting;
    this.waiting = '';
    return text + rest;
  }

  private text(from: number, to?: number): string {
    const part = this.tokens.slice(from, to);
    // Some tokenizers refuse to decode nothing.
    return part.length > 0 ? this.decode(part) : '';
  }

  private release(text: string): string {
    if (this.stopped) return '';
    this.waiting += text;
    let first = -1;
    for (const word of this.stopWords) {
      const at = word === '' ? -1 : this.waiting.indexOf(word);
      if (at >= 0 && (first < 0 || at < first)) first = at;
    }
    if (first >= 0) {
      this.stopped = true;
      const result = this.waiting.slice(0, first);
      this.waiting = '';
      return result;
    }
    const keep = longestStart(this.waiting, this.stopWords);
    const result = this.waiting.slice(0, this.waiting.length - keep);
    this.waiting = this.waiting.slice(this.waiting.length - keep);
    return result;
  }
}

/** How many characters at the end of a text may begin one of the words. */
export function longestStart(text: string, words: readonly string[]): number {
  let longest = 0;
  for (const word of words) {
    for (let size = Math.min(word.length - 1, text.length); size > longest; size--) {
      if (text.endsWith(word.slice(0, size))) longest = size;
    }
  }
  return longest;
}
