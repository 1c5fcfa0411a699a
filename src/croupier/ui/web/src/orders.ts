// What the action dialog writes: the steps of a request, its body, and the request that takes it back.

export type Allocation = {
  mode: 'Exclusive' | 'MIG' | 'TimeSlice' | 'MPS'
  migProfile?: string
  migLayout?: { profile: string; count: number }[]
  timeSlice?: { maxSlicesPerDevice: number }
  maxDevicesPerNode?: number
  rollout?: 'WholePool' | 'PerCard'
}

export type ActionName =
  | 'assign' | 'unassign' | 'drain' | 'undrain' | 'retire' | 'unretire' | 'confirm' | 'share' | 'release'

export type ActionRequest = {
  action: ActionName
  cards?: string[]
  pool?: string
  reason?: string
  allocation?: Allocation
  namespace?: string
  name?: string
}

// The group of `ui.actions` that allows the action.
export function right(action: ActionName): 'cards' | 'pools' | 'reservations' {
  if (action === 'release') return 'reservations'
  return action === 'confirm' || action === 'share' ? 'pools' : 'cards'
}

// Only the fields that belong to the action: the same request always has the same body.
export function body(request: ActionRequest): ActionRequest {
  const { action, cards = [], pool = '', reason = '', allocation, namespace = '', name = '' } = request
  switch (action) {
    case 'assign': return { action, cards, pool }
    case 'drain': return { action, cards, reason }
    case 'confirm': return { action, pool }
    case 'share': return { action, pool, allocation }
    case 'release': return { action, namespace, name }
    default: return { action, cards }
  }
}

// What the user still has to choose, or null if the request can be previewed.
export function missing(request: ActionRequest): 'pool' | 'cards' | 'allocation' | null {
  if (right(request.action) === 'cards' && !request.cards?.length) return 'cards'
  if (request.action === 'assign' && !request.pool) return 'pool'
  if (request.action === 'share' && !valid(request.allocation)) return 'allocation'
  return null
}

export const PROFILE = /^([1-7]c[.])?[1-7]g[.][0-9]+gb([+][a-z.]+)?$/

function valid(allocation: Allocation | undefined): boolean {
  if (!allocation) return false
  if (allocation.mode === 'TimeSlice') {
    const slices = allocation.timeSlice?.maxSlicesPerDevice ?? 8
    return Number.isInteger(slices) && slices >= 1 && slices <= 64
  }
  if (allocation.mode !== 'MIG') return true
  if (allocation.migProfile) return PROFILE.test(allocation.migProfile)
  const layout = allocation.migLayout ?? []
  return layout.length > 0 && layout.every((part) => PROFILE.test(part.profile) && part.count >= 1)
}

// A card of another pool has to leave it first, so that is an own step.
export function steps(request: ActionRequest, poolOf: (card: string) => string): ActionRequest[] {
  if (request.action !== 'assign' || !request.pool) return [request]
  const foreign = (request.cards ?? []).filter((card) => !['', request.pool].includes(poolOf(card)))
  return foreign.length ? [{ action: 'unassign', cards: foreign }, request] : [request]
}

export type Before = { pool: (card: string) => string; allocation: Allocation | undefined }

// The requests that undo `request` for `cards` that were written; empty if there is no way back.
export function undo(request: ActionRequest, written: readonly string[], before: Before): ActionRequest[] {
  const cards = [...written]
  switch (request.action) {
    case 'assign':
      return [...grouped(cards, (card) => (before.pool(card) === request.pool ? '' : before.pool(card)))].map(
        ([pool, list]) => (pool ? { action: 'assign', pool, cards: list } : { action: 'unassign', cards: list }),
      )
    case 'drain': return cards.length ? [{ action: 'undrain', cards }] : []
    case 'undrain': return cards.length ? [{ action: 'drain', cards, reason: '' }] : []
    case 'retire': return cards.length ? [{ action: 'unretire', cards }] : []
    case 'unretire': return cards.length ? [{ action: 'retire', cards }] : []
    case 'share':
      if (!before.allocation || !request.pool) return []
      return [{ action: 'share', pool: request.pool, allocation: before.allocation }]
    case 'unassign':
      return [...grouped(cards, before.pool)]
        .filter(([pool]) => pool)
        .map(([pool, list]) => ({ action: 'assign', pool, cards: list }))
    default: return []
  }
}

function grouped(cards: readonly string[], poolOf: (card: string) => string): Map<string, string[]> {
  const groups = new Map<string, string[]>()
  for (const card of cards) {
    const pool = poolOf(card)
    groups.set(pool, [...(groups.get(pool) ?? []), card])
  }
  return groups
}

// `1g.10gb:4, 3g.40gb` as a layout; null if it is not one.
export function parseLayout(text: string): { profile: string; count: number }[] | null {
  const parts = text.split(',').map((part) => part.trim()).filter(Boolean)
  const layout = parts.map((part) => {
    const [profile = '', count = '1'] = part.split(':').map((piece) => piece.trim())
    return { profile, count: Number(count) }
  })
  const good = layout.every(({ profile, count }) => PROFILE.test(profile) && count >= 1 && count <= 7 && count % 1 === 0)
  return good && layout.length ? layout : null
}

export function layoutText(layout: readonly { profile: string; count: number }[]): string {
  return layout.map(({ profile, count }) => `${profile}:${count}`).join(', ')
}
