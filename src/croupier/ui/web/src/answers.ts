// Answers of the server to questions of a page: asked again when the question changes, the last answer kept.

import { useEffect, useRef, useState } from 'preact/hooks'
import { get, post } from './api.ts'
import type { Me } from './wire.ts'

export interface Answer<T> {
  data: T | null
  error: string
  asking: boolean
}

const NOTHING = { data: null, error: '', asking: true }

// `path` null asks nothing. A change of `again` asks again and keeps the old answer until the new one comes.
export function useGet<T>(path: string | null, again: unknown = 0): Answer<T> {
  return useQuestion<T>(path, again, 0, (signal) => get<T>(path!, signal))
}

// Asks with a body, `delay` milliseconds after its last change; an older question is aborted.
export function usePosted<T>(path: string, body: unknown, { delay = 150, again = 0 as unknown } = {}): Answer<T> {
  const text = body === null ? null : JSON.stringify(body)
  return useQuestion<T>(text === null ? null : `${path} ${text}`, again, delay, (signal) => post<T>(path, body, signal))
}

function useQuestion<T>(
  question: string | null, again: unknown, delay: number, ask: (signal: AbortSignal) => Promise<T>,
): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>(NOTHING)
  const asked = useRef<string | null>(null)
  useEffect(() => {
    if (question === null) {
      setAnswer({ data: null, error: '', asking: false })
      return
    }
    const other = asked.current?.split(' ')[0] !== question.split(' ')[0]
    asked.current = question
    const abort = new AbortController()
    setAnswer((last) => (other ? NOTHING : { ...last, asking: true }))
    const timer = setTimeout(() => {
      ask(abort.signal).then(
        (data) => abort.signal.aborted || setAnswer({ data, error: '', asking: false }),
        (error: Error) => abort.signal.aborted || setAnswer({ data: null, error: error.message, asking: false }),
      )
    }, delay)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [question, again])
  return answer
}

let me: Promise<Me> | null = null

// Who the user is and what the page may do, asked once; null until it is known.
export function useMe(): Me | null {
  const [known, setKnown] = useState<Me | null>(null)
  useEffect(() => {
    let gone = false
    me ??= get<Me>('/api/v1/me')
    me.then((answer) => gone || setKnown(answer), () => void (me = null))
    return () => void (gone = true)
  }, [])
  return known
}

// A number that increases every `seconds` while the page is visible.
export function useTick(seconds: number): number {
  const [tick, setTick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTick((last) => last + 1), seconds * 1000)
    return () => clearInterval(timer)
  }, [seconds])
  return tick
}
