/** What Node has not of a browser's storage: the Cache API and a private file system. */

export class FakeCaches {
  readonly places = new Map<string, FakeCache>();
  /** Bytes that fit. */
  quota = Infinity;

  async open(name: string): Promise<FakeCache> {
    const place = this.places.get(name) ?? new FakeCache(this);
    this.places.set(name, place);
    return place;
  }

  async delete(name: string): Promise<boolean> {
    return this.places.delete(name);
  }
}

class FakeCache {
  readonly entries = new Map<string, Uint8Array<ArrayBuffer>>();

  constructor(readonly owner: FakeCaches) {}

  async keys(url: string): Promise<{ url: string }[]> {
    const path = url.split('?')[0];
    const all = [...this.entries.keys()].filter((key) => key.split('?')[0] === path);
    return all.map((key) => ({ url: key }));
  }

  async match(key: string): Promise<Response | undefined> {
    const found = this.entries.get(key);
    return found && new Response(found);
  }

  async put(key: string, response: Response): Promise<void> {
    const bytes = new Uint8Array(await response.arrayBuffer());
    const used = [...this.entries.values()].reduce((sum, each) => sum + each.length, 0);
    if (used + bytes.length > this.owner.quota) {
      throw new DOMException('Quota exceeded.', 'QuotaExceededError');
    }
    this.entries.set(key, bytes);
  }

  async delete(key: string): Promise<boolean> {
    return this.entries.delete(key);
  }
}

function notFound(): DOMException {
  return new DOMException('no such entry', 'NotFoundError');
}

class FakeFile {
  bytes = new Uint8Array(0);

  async getFile(): Promise<Blob> {
    return new Blob([this.bytes]);
  }

  async createWritable(): Promise<object> {
    let written = new Uint8Array(0);
    return {
      write: async (bytes: Uint8Array) => {
        written = new Uint8Array(Buffer.concat([written, bytes]));
      },
      close: async () => {
        this.bytes = written;
      },
    };
  }
}

export class FakeFolder {
  readonly folders = new Map<string, FakeFolder>();
  readonly files = new Map<string, FakeFile>();

  async *keys(): AsyncGenerator<string> {
    yield* [...this.folders.keys(), ...this.files.keys()];
  }

  async getDirectoryHandle(
    name: string,
    options: { create?: boolean } = {},
  ): Promise<FakeFolder> {
    const folder = this.folders.get(name) ?? (options.create ? new FakeFolder() : null);
    if (folder === null) {
      throw notFound();
    }
    this.folders.set(name, folder);
    return folder;
  }

  async getFileHandle(
    name: string,
    options: { create?: boolean } = {},
  ): Promise<FakeFile> {
    const file = this.files.get(name) ?? (options.create ? new FakeFile() : null);
    if (file === null) {
      throw notFound();
    }
    this.files.set(name, file);
    return file;
  }

  async removeEntry(name: string): Promise<void> {
    if (!this.files.delete(name) && !this.folders.delete(name)) {
      throw notFound();
    }
  }
}
