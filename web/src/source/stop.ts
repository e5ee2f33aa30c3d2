/** What ends a load: the caller's signal while it lasts, or `close`. */
export class Stop {
  readonly #controller = new AbortController();
  readonly #from: AbortSignal | undefined;
  readonly #follow = () => this.#controller.abort(this.#from?.reason);

  constructor(from: AbortSignal | undefined) {
    this.#from = from;
    if (from?.aborted) {
      this.#follow();
    }
    from?.addEventListener('abort', this.#follow);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
    this.release();
  }

  /** The caller's signal is no longer listened to. */
  release(): void {
    this.#from?.removeEventListener('abort', this.#follow);
  }
}
