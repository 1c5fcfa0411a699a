// The dialog behind every action: what would happen is shown before anything is written, then its progress.

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { usePosted, useMe } from '../answers.ts'
import { post } from '../api.ts'
import { Dialog, ErrorNote, Field, Note, PoolLink } from '../components.tsx'
import { t } from '../i18n.ts'
import { currentModel, useModel } from '../model.ts'
import type { Model } from '../model.ts'
import { body, missing, right, steps, undo } from '../orders.ts'
import type { ActionName, ActionRequest, Allocation } from '../orders.ts'
import { PreviewPanel } from './preview.tsx'
import type { Preview } from './preview.tsx'
import { ProgressPanel } from './progress.tsx'
import type { Result } from './progress.tsx'
import { SharingForm } from './sharing-form.tsx'

export type { ActionRequest } from '../orders.ts'

let show: ((request: ActionRequest) => void) | null = null

export function openAction(request: ActionRequest): void {
  show?.(request)
}

export function titleOf(request: ActionRequest): string {
  const n = request.cards?.length ?? 0
  const pool = request.pool ?? ''
  const titles: Record<ActionName, () => string> = {
    assign: () => pool ? t('Assign {n} card to {pool}|Assign {n} cards to {pool}', { n, pool })
      : t('Assign {n} card to a pool|Assign {n} cards to a pool', { n }),
    unassign: () => t('Unassign {n} card|Unassign {n} cards', { n }),
    drain: () => t('Drain {n} card|Drain {n} cards', { n }),
    undrain: () => t('Give {n} card back|Give {n} cards back', { n }),
    retire: () => t('Retire {n} card|Retire {n} cards', { n }),
    unretire: () => t('Use {n} retired card again|Use {n} retired cards again', { n }),
    confirm: () => t('Confirm pool {pool}', { pool }),
    share: () => t('Change the sharing of pool {pool}', { pool }),
    release: () => t('Release reservation {name}', { name: `${request.namespace}/${request.name}` }),
  }
  return titles[request.action]()
}

// Mounted once; keyed by the request so that every opening starts fresh.
export function ActionDialog(): JSX.Element | null {
  const [opened, setOpened] = useState<{ request: ActionRequest; number: number } | null>(null)
  const opener = useRef<Element | null>(null)
  useEffect(() => {
    let number = 0
    show = (request) => {
      if (!document.activeElement?.closest('dialog')) opener.current = document.activeElement
      setOpened({ request, number: ++number })
    }
    return () => void (show = null)
  }, [])
  if (!opened) return null
  const close = (): void => {
    setOpened(null)
    requestAnimationFrame(() => (opener.current as HTMLElement | null)?.focus?.())
  }
  return <Opened key={opened.number} first={opened.request} onClose={close} />
}

const poolOf = (model: Model) => (card: string): string => {
  const row = model.cards.get(card)
  return row ? row.assigned || row.pool : ''
}

function Opened({ first, onClose }: { first: ActionRequest; onClose: () => void }): JSX.Element {
  const model = useModel()
  const me = useMe()
  const [request, setRequest] = useState(first)
  const [before, setBefore] = useState<Allocation | undefined>()
  const pools = useMemo(() => new Map((first.cards ?? []).map((card) => [card, poolOf(currentModel())(card)])), [])
  const plan = steps(request, (card) => pools.get(card) ?? '')
  const [at, setAt] = useState(0)
  const [results, setResults] = useState<Result[] | null>(null)
  const [writing, setWriting] = useState(false)
  const [error, setError] = useState('')
  const step = plan[Math.min(at, plan.length - 1)]!
  const lacks = missing(step)
  const kind = right(step.action)
  const past = model.status === 'history'
  const asks = results || lacks || past ? null : body(step)
  const preview = usePosted<Preview>('/api/v1/preview', asks, { again: signature(model, step) })
  const writable = (preview.data?.objects ?? []).filter(
    (object) => object.dryRun.ok && (object.outcome === 'now' || object.outcome === 'later'),
  )
  const denied = me !== null && !me.actions.includes(kind)
  const ready = writable.length > 0 && !preview.asking && !denied && !writing && !results

  const write = async (): Promise<void> => {
    if (!ready) return
    setWriting(true)
    setError('')
    const names = writable.map((object) => object.name)
    const versions = Object.fromEntries(writable.map((object) => [object.name, object.resourceVersion]))
    try {
      const narrowed = step.cards ? { ...step, cards: step.cards.filter((card) => names.includes(card)) } : step
      const answer = await post<{ results: Result[] }>('/api/v1/act', { ...body(narrowed), versions })
      setResults(answer.results)
    } catch (failure) {
      setError((failure as Error).message)
    }
    setWriting(false)
  }
  const keys = (event: KeyboardEvent): void => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void write()
  }
  const next = (): void => {
    setResults(null)
    setAt(at + 1)
  }
  const change = (fields: Partial<ActionRequest>): void => setRequest({ ...request, ...fields })
  const written = (results ?? []).filter((result) => result.ok).map((result) => result.name)
  const back = results && at === plan.length - 1
    ? undo(step, written, { pool: (card) => pools.get(card) ?? '', allocation: before }) : []

  const footer = results
    ? <>
      {back.map((reverse) => (
        <button type="button" onClick={() => openAction(reverse)}>
          {back.length > 1 ? t('Take it back: {what}', { what: titleOf(reverse) }) : t('Take it back')}
        </button>
      ))}
      {at < plan.length - 1
        ? <button type="button" class="primary" onClick={next}>{t('Go to step {n}', { n: at + 2 })}</button>
        : <button type="button" class="primary" onClick={onClose}>{t('Close')}</button>}
    </>
    : <>
      <button type="button" onClick={onClose}>{t('Cancel')}</button>
      <button type="button" class="primary" aria-disabled={!ready} onClick={() => void write()}
        title={t('Ctrl+Enter')}>
        {writing ? t('Writing …') : t('Write it')}
      </button>
    </>

  return (
    <Dialog title={titleOf(request)} open wide onClose={onClose} onKeyDown={keys} footer={footer}>
      <div class="action">
        <div class="action-left">
          {plan.length > 1 && <Plan plan={plan} at={at} />}
          <Inputs request={request} locked={results !== null || at > 0} onChange={change} onBefore={setBefore} />
          {request.cards && <CardList cards={request.cards} model={model} />}
        </div>
        <div class="action-right" aria-live="polite" aria-busy={preview.asking}>
          {past && <Note kind="warning">{t('You see the past. Go back to now to change something.')}</Note>}
          {denied && <Note kind="warning">{notEnabled(kind)}</Note>}
          {results
            ? <ProgressPanel request={{ ...step, ...(step.cards ? { cards: written } : {}) }} results={results} />
            : lacks
              ? <p class="empty">{lackText(lacks)}</p>
              : <PreviewPanel preview={preview.data} asking={preview.asking} />}
          <ErrorNote error={error || preview.error} />
        </div>
      </div>
    </Dialog>
  )
}

// Changes when an object of the request changes, so that the preview is made again.
function signature(model: Model, step: ActionRequest): string {
  const cards = (step.cards ?? []).map((card) => model.cards.get(card))
  return JSON.stringify([cards, step.pool ? model.pools.get(step.pool) : null])
}

function notEnabled(kind: 'cards' | 'pools' | 'reservations'): string {
  if (kind === 'cards') return t('Changing cards is not enabled on this page (ui.actions). The command lines below do the same.')
  if (kind === 'pools') return t('Changing pools is not enabled on this page (ui.actions). The command lines below do the same.')
  return t('Releasing reservations is not enabled on this page (ui.actions). The command lines below do the same.')
}

function lackText(lacks: 'pool' | 'cards' | 'allocation'): string {
  if (lacks === 'pool') return t('Choose a pool: what would happen appears here.')
  return lacks === 'cards' ? t('No card is selected.') : t('Complete the form: what would happen appears here.')
}

function Plan({ plan, at }: { plan: ActionRequest[]; at: number }): JSX.Element {
  return (
    <ol class="plan" aria-label={t('Steps')}>
      {plan.map((step, index) => (
        <li key={index} aria-current={index === at ? 'step' : undefined} class={index < at ? 'done' : ''}>
          {titleOf(step)}
        </li>
      ))}
    </ol>
  )
}

interface InputsProps {
  request: ActionRequest
  locked: boolean
  onChange: (fields: Partial<ActionRequest>) => void
  onBefore: (allocation: Allocation | undefined) => void
}

function Inputs({ request, locked, onChange, onBefore }: InputsProps): JSX.Element | null {
  const model = useModel()
  switch (request.action) {
    case 'assign':
      return (
        <Field label={t('Pool')}>
          {(id) => (
            <select id={id} value={request.pool ?? ''} disabled={locked}
              onChange={(event) => onChange({ pool: event.currentTarget.value })}>
              <option value="">{t('choose a pool')}</option>
              {[...model.pools.keys()].sort().map((pool) => <option key={pool} value={pool}>{pool}</option>)}
            </select>
          )}
        </Field>
      )
    case 'drain':
      return (
        <Field label={t('Reason')} hint={t('Shown in the status of the card. No pod is evicted.')}>
          {(id) => (
            <input id={id} value={request.reason ?? ''} maxLength={256} disabled={locked}
              onInput={(event) => onChange({ reason: event.currentTarget.value })} />
          )}
        </Field>
      )
    case 'share':
      return (
        <SharingForm pool={request.pool ?? ''} value={request.allocation} locked={locked} onBefore={onBefore}
          onChange={(allocation) => onChange({ allocation })} />
      )
    case 'confirm':
      return <p>{t('Pool')}: <PoolLink pool={request.pool ?? ''} /></p>
    default:
      return null
  }
}

const SHOWN = 200

function CardList({ cards, model }: { cards: string[]; model: Model }): JSX.Element {
  return (
    <>
      <h3>{t('{n} card|{n} cards', { n: cards.length })}</h3>
      <ul class="object-list" tabIndex={0} aria-label={t('Cards')}>
        {cards.slice(0, SHOWN).map((card) => {
          const row = model.cards.get(card)
          return (
            <li key={card}>
              <span class="name">{card}</span>{' '}
              <small class="muted">{row ? row.pool || t('no pool') : t('unknown')}</small>
            </li>
          )
        })}
        {cards.length > SHOWN && <li>{t('and {n} more', { n: cards.length - SHOWN })}</li>}
      </ul>
    </>
  )
}

