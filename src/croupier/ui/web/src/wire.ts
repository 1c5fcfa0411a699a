// The rows of docs/ui-api.md as types, and the compact rows of cards and holders as objects with names.

export type Mode = 'none' | 'Percent' | 'Exclusive' | 'MIG' | 'TimeSlice'
export type State = 'Unknown' | 'Unassigned' | 'Reserved' | 'Assigned' | 'Faulted'

export const MODES: readonly Mode[] = ['none', 'Percent', 'Exclusive', 'MIG', 'TimeSlice']
export const STATES: readonly State[] = ['Unknown', 'Unassigned', 'Reserved', 'Assigned', 'Faulted']

export type HolderShare = [number: number, share: number]
export type SlotRow = [id: string, profile: string, start: number, size: number, holder: number]

export type CardRow = [
  node: string,
  index: number,
  mode: number,
  pool: string,
  state: number,
  flags: number,
  capacity: number,
  free: number,
  holders: HolderShare[],
  slots: SlotRow[],
  product: string,
  reason: string,
  assigned: string,
  offers: string[],
  ledgerPool: string,
]

export interface Slot {
  id: string
  profile: string
  start: number
  size: number
  holder: number // 0: free
}

export interface Card {
  id: string
  node: string
  index: number
  mode: Mode
  pool: string
  state: State
  healthy: boolean // as in the ledger, which takes a drained card out by marking it unhealthy
  unhealthy: boolean // and neither drained nor retired
  drained: boolean
  retired: boolean
  withdrawn: boolean
  silent: boolean
  changing: boolean
  unmanaged: boolean
  capacity: number
  free: number
  holders: { number: number; share: number }[]
  slots: Slot[]
  product: string
  reason: string
  assigned: string
  offers: string[]
  ledgerPool: string
}

export type HolderRow = [key: string, state: number, until: number | null, reservation: string]

export interface Holder {
  key: string // as in the ledger: namespace/pod/uid or namespace/pod
  pod: string
  namespace: string
  bound: boolean
  until: number | null
  reservation: string
}

export interface NodeRow {
  zone: string
  model: string
  silent: boolean
  recorded: boolean
  cordoned: boolean
  phase: string
  message: string
  groups: Record<string, string>
}

export interface Condition {
  type: string
  status: string
  reason: string
  message: string
  since: number | null
}

export interface PoolRow {
  mode: string
  unit: string
  sharing: string
  applied: string
  strategy: string
  total: number | null
  used: number | null
  booked: number | null
  available: number | null
  cards: number
  nodes: number
  candidates: number
  conditions: Condition[]
  generation: number
  confirmed: number | boolean | null
}

export interface WaitingRow {
  asks: string[]
  since: number | null
  pool: string
  priority: number
  state: string
  sentence: string
  scheduler: string
}

export interface ReservationRow {
  pod: string
  node: string
  state: string
  until: number | null
  cards: string[]
  share: string | number
  owner: string
  priority: number
  created: number | null
  message: string
}

export interface MarketRow {
  alive: boolean
  lastSeen: number | null
  capacity: unknown
  outside: unknown
  factor: number | null
  strict: boolean
  dryRun: boolean
  books: unknown
}

export interface Finding {
  class: string
  message: string
  card: string
  holder: string
}
export type FindingRow = Finding[]

export interface ChangeRow {
  number: number // the key of the row
  at: number
  kind: string
  object: string
  namespace: string
  text: string
}

export interface ClusterRow {
  server: string
  context: string
  version: string
  capacityManager: string
  unreadable: Record<string, string>
}

export interface RowsByTable {
  cluster: ClusterRow
  nodes: NodeRow
  cards: CardRow
  pools: PoolRow
  holders: HolderRow
  waiting: WaitingRow
  reservations: ReservationRow
  market: MarketRow
  findings: FindingRow
  changes: Omit<ChangeRow, 'number'>
}
export type TableName = keyof RowsByTable
export type Tables = { [Name in TableName]?: Record<string, RowsByTable[Name] | null> }

export interface Delta {
  seq: number
  at: number
  tables: Tables
}

export interface Snapshot extends Delta {
  process: string
  part: 'cards' | 'names' | 'all'
}

export const PARTS: Record<Snapshot['part'], readonly TableName[]> = {
  cards: ['cluster', 'nodes', 'cards', 'pools'],
  names: ['holders', 'waiting', 'reservations', 'market', 'findings', 'changes'],
  all: [
    'cluster', 'nodes', 'cards', 'pools', 'holders', 'waiting', 'reservations', 'market', 'findings', 'changes',
  ],
}

export function decodeCard(id: string, row: CardRow): Card {
  const flags = row[5]
  const healthy = (flags & 1) === 0
  const withdrawnByPerson = (flags & (2 | 4)) !== 0
  return {
    id,
    node: row[0],
    index: row[1],
    mode: MODES[row[2]] ?? 'none',
    pool: row[3],
    state: STATES[row[4]] ?? 'Unknown',
    healthy,
    unhealthy: !healthy && !withdrawnByPerson,
    drained: (flags & 2) !== 0,
    retired: (flags & 4) !== 0,
    withdrawn: (flags & 8) !== 0,
    silent: (flags & 16) !== 0,
    changing: (flags & 32) !== 0,
    unmanaged: (flags & 64) !== 0,
    capacity: row[6],
    free: row[7],
    holders: (row[8] ?? []).map(([number, share]) => ({ number, share })),
    slots: (row[9] ?? []).map(([slot, profile, start, size, holder]) => ({ id: slot, profile, start, size, holder })),
    product: row[10] ?? '',
    reason: row[11] ?? '',
    assigned: row[12] ?? '',
    offers: row[13] ?? [],
    ledgerPool: row[14] ?? '',
  }
}

export function decodeHolder(row: HolderRow): Holder {
  const [namespace = '', pod = ''] = row[0].split('/')
  return { key: row[0], namespace, pod, bound: row[1] === 1, until: row[2] || null, reservation: row[3] ?? '' }
}

export interface Me {
  user: string
  groups: string[]
  mode: 'local' | 'bearer' | 'token' | 'headers'
  actions: string[]
  sees: { everything: boolean; cards: boolean; namespaces: string[] | null }
  expires: number | null
}
