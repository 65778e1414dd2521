// Responses whose body was read before the caller gets them. To make a new response with a stream of its own
// takes longer than judging the call, so the caller gets the response that came, and its body from memory.

const READ = Symbol('deadstop.read');

/** What a body was, and whether the caller has read it. */
interface Read {
  readonly bytes: Uint8Array;
  used: boolean;
  /** Made where the caller wants a stream. */
  made: Response | undefined;
}

type Held = Response & { [READ]: Read };

/** The response itself, whose body is these bytes from now on. */
export function withBody(response: Response, bytes: Uint8Array): Response {
  (response as Held)[READ] = { bytes, used: false, made: undefined };
  return Object.defineProperties(response, FROM_MEMORY);
}

/** A new response that differs in its body. */
export function sameBut(response: Response, body: BodyInit): Response {
  const { status, statusText, headers, url } = response;
  return Object.defineProperty(new Response(body, { status, statusText, headers }), 'url', { value: url });
}

const decoder = new TextDecoder();

/** The response with a stream. */
function made(response: Held): Response {
  const read = response[READ];
  return (read.made ??= sameBut(response, read.bytes as BodyInit));
}

/** The bytes, once. */
function taken(response: Held): Uint8Array {
  const read = response[READ];
  if (read.used || read.made?.bodyUsed) throw new TypeError('Body is unusable: Body has already been read');
  read.used = true;
  return read.bytes;
}

const FROM_MEMORY: PropertyDescriptorMap = {
  body: {
    get(this: Held) {
      return made(this).body;
    },
  },
  bodyUsed: {
    get(this: Held) {
      return this[READ].used || this[READ].made?.bodyUsed === true;
    },
  },
  clone: {
    value(this: Held) {
      const { used, bytes, made } = this[READ];
      if (used) throw new TypeError('Response.clone: Body has already been consumed.');
      return made ? made.clone() : sameBut(this, bytes as BodyInit);
    },
  },
  json: {
    async value(this: Held) {
      return JSON.parse(decoder.decode(taken(this))) as unknown;
    },
  },
  text: {
    async value(this: Held) {
      return decoder.decode(taken(this));
    },
  },
  arrayBuffer: {
    async value(this: Held) {
      const { buffer, byteOffset, byteLength } = taken(this);
      return buffer.slice(byteOffset, byteOffset + byteLength);
    },
  },
  bytes: {
    async value(this: Held) {
      return taken(this).slice();
    },
  },
  blob: {
    async value(this: Held) {
      return sameBut(this, taken(this) as BodyInit).blob();
    },
  },
  formData: {
    async value(this: Held) {
      return sameBut(this, taken(this) as BodyInit).formData();
    },
  },
};
