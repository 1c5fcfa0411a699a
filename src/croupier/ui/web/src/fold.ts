// Folds snapshots and deltas into tables. Pure: no clock, no network, no DOM.
//
// Each table has a floor: the seq of the snapshot that filled it. The two parts of a snapshot have different
// floors, so a delta is applied only to tables whose floor is below it. Applying a delta twice changes nothing.

import { decodeCard, decodeHolder, PARTS } from './wire.ts'
import type {
  Card, CardRow, ChangeRow, ClusterRow, Delta, FindingRow, Holder, HolderRow, MarketRow, NodeRow, PoolRow,
  ReservationRow, RowsByTable, Snapshot, TableName, WaitingRow,
} from './wire.ts'

export interface Store {
  process: string
  seq: number
  at: number
  floors: Partial<Record<TableName, number>>
  versions: Record<TableName, number>
  cluster: ClusterRow | null
  cards: Map<string, Card>
  holders: Map<number, Holder>
  nodes: Map<string, NodeRow>
  pools: Map<string, PoolRow>
  waiting: Map<string, WaitingRow>
  reservations: Map<string, ReservationRow>
  market: Map<string, MarketRow>
  findings: Map<string, FindingRow>
  changes: ChangeRow[] // newest first
}

// What a fold changed. `all`: a snapshot was loaded, everything may differ.
export interface Fold {
  all: boolean
  tables: Set<TableName>
  cards: Set<string>
  holders: Set<number>
}

export const MAX_CHANGES = 200

export function emptyStore(): Store {
  const versions = Object.fromEntries(PARTS.all.map((table) => [table, 0])) as Record<TableName, number>
  return {
    process: '', seq: 0, at: 0, floors: {}, versions, cluster: null,
    cards: new Map(), holders: new Map(), nodes: new Map(), pools: new Map(), waiting: new Map(),
    reservations: new Map(), market: new Map(), findings: new Map(), changes: [],
  }
}

export function emptyFold(): Fold {
  return { all: false, tables: new Set(), cards: new Set(), holders: new Set() }
}

function clear(store: Store, table: TableName): void {
  if (table === 'cluster') store.cluster = null
  else if (table === 'changes') store.changes = []
  else store[table].clear()
}

function putChange(store: Store, key: string, row: RowsByTable['changes'] | null): void {
  const number = Number(key)
  const changes = store.changes.filter((change) => change.number !== number)
  if (row !== null) {
    const place = changes.findIndex((change) => change.number < number)
    changes.splice(place === -1 ? changes.length : place, 0, { number, ...row })
  }
  store.changes = changes.slice(0, MAX_CHANGES)
}

function put(store: Store, table: TableName, key: string, row: unknown, fold: Fold): void {
  if (table === 'cluster') {
    store.cluster = row as ClusterRow | null
  } else if (table === 'changes') {
    putChange(store, key, row as RowsByTable['changes'] | null)
  } else if (table === 'cards') {
    fold.cards.add(key)
    if (row === null) store.cards.delete(key)
    else store.cards.set(key, decodeCard(key, row as CardRow))
  } else if (table === 'holders') {
    const number = Number(key)
    fold.holders.add(number)
    if (row === null) store.holders.delete(number)
    else store.holders.set(number, decodeHolder(row as HolderRow))
  } else if (table in store.floors || table in store.versions) {
    const rows = store[table] as Map<string, unknown>
    if (row === null) rows.delete(key)
    else rows.set(key, row)
  }
}

// Replaces the tables of the snapshot's part. The parts must come from one process.
export function load(store: Store, snapshot: Snapshot): Fold {
  const fold: Fold = { ...emptyFold(), all: true }
  store.process = snapshot.process
  store.at = Math.max(store.at, snapshot.at)
  for (const table of PARTS[snapshot.part]) {
    clear(store, table)
    for (const [key, row] of Object.entries(snapshot.tables[table] ?? {})) put(store, table, key, row, fold)
    store.floors[table] = snapshot.seq
    store.versions[table]++
    fold.tables.add(table)
  }
  // The stream continues from the oldest part.
  store.seq = Math.min(...Object.values(store.floors))
  return fold
}

export function apply(store: Store, delta: Delta): Fold {
  const fold = emptyFold()
  for (const [name, rows] of Object.entries(delta.tables)) {
    const table = name as TableName
    const floor = store.floors[table]
    if (floor === undefined || delta.seq <= floor) continue // not loaded yet, or already in the snapshot
    for (const [key, row] of Object.entries(rows ?? {})) put(store, table, key, row, fold)
    store.versions[table]++
    fold.tables.add(table)
  }
  store.seq = Math.max(store.seq, delta.seq)
  store.at = Math.max(store.at, delta.at)
  return fold
}

export function merge(into: Fold, more: Fold): Fold {
  into.all ||= more.all
  for (const table of more.tables) into.tables.add(table)
  for (const card of more.cards) into.cards.add(card)
  for (const holder of more.holders) into.holders.add(holder)
  return into
}
