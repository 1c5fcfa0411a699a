// Requests to the server. An error's message is the sentence of the server.

import { t } from './i18n.ts'

export class ApiError extends Error {
  status: number
  mode: string // of an answer 401: how to sign in
  constructor(status: number, sentence: string, mode = '') {
    super(sentence)
    this.status = status
    this.mode = mode
  }
}

let unauthorized: () => void = () => {}

// Called after every answer 401; main.tsx opens the login page.
export function onUnauthorized(listener: () => void): void {
  unauthorized = listener
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: string; mode?: string }
    if (body.error) return new ApiError(response.status, body.error, body.mode)
  } catch {
    // Not JSON: a proxy answered.
  }
  const status = `${response.status} ${response.statusText}`.trim()
  return new ApiError(response.status, t('The server answered {status}.', { status }))
}

async function request<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response
  try {
    response = await fetch(path, { credentials: 'same-origin', cache: 'no-store', ...init })
  } catch {
    throw new ApiError(0, t('The server of this page cannot be reached. Check that "croupier ui" runs.'))
  }
  if (response.status === 401) unauthorized()
  if (!response.ok) throw await errorOf(response)
  return (await response.json()) as T
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return request<T>(path, { headers: { Accept: 'application/json' }, ...(signal ? { signal } : {}) })
}

export function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return request<T>(path, {
    method: 'POST',
    headers: { Accept: 'application/json', 'Content-Type': 'application/json', 'X-Croupier': '1' },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  })
}
