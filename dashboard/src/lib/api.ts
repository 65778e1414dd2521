// The API, typed by its own document: a path and a method decide what goes in and what comes out.
import type { components, paths } from './api-types';

export type Schemas = components['schemas'];
export type Row = Schemas['Row'];
export type Running = Schemas['Running'];
export type Agent = Schemas['Agent'];
export type Quota = Schemas['Quota'];
export type Session = Schemas['Session'];
export type Call = Schemas['Call'];
export type Incident = Schemas['Incident'];
export type IncidentDetail = Schemas['IncidentDetail'];
export type Said = Schemas['Said'];
export type Role = Schemas['Role'];

type Method = 'get' | 'put' | 'post' | 'delete' | 'patch';
type PathWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, object> ? P : never;
}[keyof paths];
type Operation<P extends keyof paths, M extends Method> = M extends keyof paths[P] ? paths[P][M] : never;
type Json<R> = R extends { content: { 'application/json': infer J } } ? J : undefined;
type Answer<O> = O extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 201 | 202 | 204 ? Json<R[S]> : never }[keyof R]
  : never;
type PathParams<O> = O extends { parameters: { path: infer T } } ? { path: T } : { path?: undefined };
type Query<O> = O extends { parameters: { query?: infer Q } } ? { query?: Q } : { query?: undefined };
type BodyOf<O> = O extends { requestBody: { content: { 'application/json': infer B } } }
  ? { body: B }
  : { body?: undefined };
type Options<O> = PathParams<O> & Query<O> & BodyOf<O> & { signal?: AbortSignal; ifMatch?: number };

/** What the server refuses, in its own words. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly errors: Schemas['FieldFault'][] = [],
  ) {
    super(detail);
  }
}

/** What every request needs and only signing in knows. */
export const credentials = {
  csrf: null as string | null,
  /** Called when the server answers that the user must sign in. */
  onSignInNeeded: () => {},
};

/** A path with its parameters filled in and its query behind it. */
export function address(
  template: string,
  path: Record<string, string | number> = {},
  query: Record<string, unknown> = {},
): string {
  const filled = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(path[name])));
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') asked.set(name, String(value));
  }
  return asked.size > 0 ? `${filled}?${asked}` : filled;
}

async function problem(response: Response): Promise<Problem> {
  const said = await response.json().catch(() => null) as Partial<Schemas['Problem']> | null;
  const detail = said?.detail ?? `the server answered ${response.status}`;
  return new Problem(response.status, String(said?.code ?? 'unknown'), detail, said?.errors ?? []);
}

/** Asks the API. */
export async function ask<M extends Method, P extends PathWith<M>>(
  method: M,
  path: P,
  options: Options<Operation<P, M>>,
): Promise<Answer<Operation<P, M>>> {
  const { path: params, query, body, signal, ifMatch } = options as {
    path?: Record<string, string>;
    query?: Record<string, unknown>;
    body?: unknown;
    signal?: AbortSignal;
    ifMatch?: number;
  };
  const headers: Record<string, string> = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (ifMatch !== undefined) headers['if-match'] = `"${ifMatch}"`;
  if (method !== 'get' && credentials.csrf) headers['x-csrf-token'] = credentials.csrf;
  let response: Response;
  try {
    response = await fetch(address(path as string, params, query), {
      method: method.toUpperCase(),
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: 'same-origin',
      cache: 'no-store',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, 'unreachable', 'the server cannot be reached; what you see may be old');
  }
  if (response.status === 401 && path !== '/api/login') credentials.onSignInNeeded();
  if (!response.ok) throw await problem(response);
  const text = await response.text();
  return (text === '' ? undefined : JSON.parse(text)) as Answer<Operation<P, M>>;
}

export const get = <P extends PathWith<'get'>>(path: P, options: Options<Operation<P, 'get'>>) =>
  ask('get', path, options);
export const put = <P extends PathWith<'put'>>(path: P, options: Options<Operation<P, 'put'>>) =>
  ask('put', path, options);
export const post = <P extends PathWith<'post'>>(path: P, options: Options<Operation<P, 'post'>>) =>
  ask('post', path, options);
export const patch = <P extends PathWith<'patch'>>(path: P, options: Options<Operation<P, 'patch'>>) =>
  ask('patch', path, options);
export const remove = <P extends PathWith<'delete'>>(path: P, options: Options<Operation<P, 'delete'>>) =>
  ask('delete', path, options);

/** What went wrong, as a sentence, whatever it was. */
export function told(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
