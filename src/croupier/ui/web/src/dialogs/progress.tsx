// After the write: what the API server answered, and each object until it is done, as `--wait` does.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { post } from '../api.ts'
import { Badge, ErrorNote, Sentence } from '../components.tsx'
import { t } from '../i18n.ts'
import { body } from '../orders.ts'
import type { ActionRequest } from '../orders.ts'

export interface Result { kind: string; name: string; ok: boolean; message: string; resourceVersion?: string }
interface Advance { name: string; done: boolean; sentence: string }

const EVERY = 1000

export function ProgressPanel({ request, results }: { request: ActionRequest; results: Result[] }): JSX.Element {
  const [objects, setObjects] = useState<Map<string, Advance>>(new Map())
  const [error, setError] = useState('')
  const written = results.filter((result) => result.ok)
  const done = written.filter((result) => objects.get(result.name)?.done).length

  useEffect(() => {
    if (!written.length) return
    let timer: ReturnType<typeof setTimeout> | undefined
    const abort = new AbortController()
    const look = async (): Promise<void> => {
      try {
        const answer = await post<{ objects: Advance[] }>('/api/v1/progress', body(request), abort.signal)
        setObjects(new Map(answer.objects.map((object) => [object.name, object])))
        setError('')
        if (answer.objects.every((object) => object.done)) return
      } catch (failure) {
        if (abort.signal.aborted) return
        setError((failure as Error).message)
      }
      if (!abort.signal.aborted) timer = setTimeout(() => void look(), EVERY)
    }
    void look()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [])

  return (
    <div class="progress-panel">
      <h3>{t('Written')}</h3>
      {written.length > 0 && (
        <p>
          <progress max={written.length} value={done} aria-label={t('Objects that are done')} />{' '}
          {done === written.length ? t('All done.') : t('{done} of {all} done', { done, all: written.length })}
        </p>
      )}
      <ul class="object-list" tabIndex={0} aria-label={t('Objects')}>
        {results.map((result) => {
          const seen = objects.get(result.name)
          const kind = !result.ok ? 'bad' : seen?.done ? 'ok' : 'info'
          return (
            <li key={result.name}>
              <Badge kind={kind}>{!result.ok ? t('refused') : seen?.done ? t('done') : t('in progress')}</Badge>{' '}
              <span class="name">{result.name}</span> <Sentence text={result.ok ? seen?.sentence || result.message : result.message} />
            </li>
          )
        })}
      </ul>
      {done < written.length && <p class="muted">{t('You can close this dialog; the change goes on.')}</p>}
      <ErrorNote error={error} />
    </div>
  )
}
