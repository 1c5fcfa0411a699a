// The model of the page: the tables of the server, kept current by stream.ts, read by components through useModel().

import { useLayoutEffect, useState } from 'preact/hooks'
import { get } from './api.ts'
import { emptyFold, emptyStore, load, merge } from './fold.ts'
import type { Fold, Store } from './fold.ts'
import type {
  Card, ChangeRow, ClusterRow, FindingRow, Holder, MarketRow, NodeRow, PoolRow, ReservationRow, Snapshot, TableName,
  WaitingRow,
} from './wire.ts'

export type Status = 'loading' | 'live' | 'catching up' | 'cut off' | 'history'

export interface Model {
  cards: Map<string, Card>
  holders: Map<number, Holder>
  nodes: Map<string, NodeRow>
  pools: Map<string, PoolRow>
  waiting: Map<string, WaitingRow>
  reservations: Map<string, ReservationRow>
  market: Map<string, MarketRow>
  findings: Map<string, FindingRow>
  changes: ChangeRow[] // newest first
  cluster: ClusterRow | null
  at: number // the time of the data
  contact: number // when the server last knew that its data was current
  status: Status
  named: boolean // the second part (names) is loaded
  version: number // increases with every change
  versions: Record<TableName, number> // likewise, per table: for useMemo
}

const live: Store = emptyStore()
let past: Store | null = null
let status: Status = 'loading'
let contact = 0
let skew = 0 // the server's clock minus ours, in seconds
let version = 0
let model: Model = build()

const foldListeners = new Set<(fold: Fold) => void>()
const renderers = new Set<(model: Model) => void>()
let pending: Fold = emptyFold()
let scheduled = false

function build(): Model {
  const store = past ?? live
  return {
    cards: store.cards, holders: store.holders, nodes: store.nodes, pools: store.pools, waiting: store.waiting,
    reservations: store.reservations, market: store.market, findings: store.findings, changes: store.changes,
    cluster: store.cluster,
    at: past ? past.at : Math.max(live.at, contact),
    contact,
    status: past ? 'history' : status,
    named: store.floors.holders !== undefined,
    version: ++version,
    versions: { ...store.versions },
  }
}

function flush(): void {
  scheduled = false
  if (document.hidden) return // visibilitychange flushes
  model = build()
  const fold = pending
  pending = emptyFold()
  for (const listener of foldListeners) listener(fold)
  for (const render of renderers) render(model)
}

function schedule(): void {
  if (scheduled || document.hidden) return
  scheduled = true
  requestAnimationFrame(flush)
}

if (typeof document !== 'undefined') {
  document.addEventListener('visibilitychange', () => {
    scheduled = false
    schedule()
  })
}

// The store that stream.ts folds into.
export function liveStore(): Store {
  return live
}

export function folded(fold: Fold): void {
  if (past) return
  merge(pending, fold)
  schedule()
}

export function setStatus(next: Status): void {
  if (status === next) return
  status = next
  schedule()
}

export function liveStatus(): Status {
  return status
}

export function beat(at: number, current: number): void {
  skew = at - Date.now() / 1000
  contact = Math.max(contact, current)
  schedule()
}

// The present time by the server's clock, in seconds; while the history is shown, the time of the history.
export function now(): number {
  return past ? past.at : Date.now() / 1000 + skew
}

export function currentModel(): Model {
  return model
}

// Re-renders the component at most once a frame, and not while the page is hidden.
export function useModel(): Model {
  const [, render] = useState(0)
  useLayoutEffect(() => { // an effect would miss a change before the first paint
    const listener = (next: Model) => render(next.version)
    renderers.add(listener)
    return () => void renderers.delete(listener)
  }, [])
  return model
}

// Calls the listener with what changed, once a frame: the canvas repaints only that.
export function onFold(listener: (fold: Fold) => void): () => void {
  foldListeners.add(listener)
  return () => void foldListeners.delete(listener)
}

function everything(): Fold {
  return { ...emptyFold(), all: true }
}

let viewing = 0

// Replaces the model by the cluster as it was at a time (seconds), until called with null.
export async function viewHistory(at: number | null): Promise<void> {
  const request = ++viewing
  if (at === null) {
    if (past === null) return
    past = null
  } else {
    const snapshot = await get<Snapshot>(`/api/v1/history/at?at=${at}`)
    if (request !== viewing) return // a later choice was made
    const store = emptyStore()
    load(store, snapshot)
    past = store
  }
  pending = everything()
  schedule()
}

export function historyAt(): number | null {
  return past ? past.at : null
}
