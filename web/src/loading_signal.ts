/** A caller's signal for as long as loading takes: what is loaded outlives it. */
export class LoadingSignal {
  readonly #own = new AbortController();
  readonly #given: AbortSignal | undefined;
  readonly #follow = (): void => this.#own.abort(this.#given?.reason);

  /** Throws if the caller has aborted already. */
  constructor(given: AbortSignal | undefined) {
    given?.throwIfAborted();
    this.#given = given;
    given?.addEventListener('abort', this.#follow);
  }

  get signal(): AbortSignal {
    return this.#own.signal;
  }

  /** The caller's signal means nothing any more. */
  end(): void {
    this.#given?.removeEventListener('abort', this.#follow);
  }
}
