// A card drawn as a strip of its parts: who holds what, what is free, and what one pod has of it.

import type { JSX } from 'preact'
import { HolderLink, PodLink } from './components.tsx'
import { t } from './i18n.ts'
import type { Card } from './wire.ts'

// A card as `croupier ledger -o json` has it.
export interface LedgerCard {
  card: string
  index: number | null
  mode: string
  pool: string | null
  healthy: boolean
  capacity?: number
  free?: number
  holders?: { pod: string; holder: string; share: number }[]
  slots?: { slot: string; profile: string; free: boolean; holder: string | null }[]
}

interface Part { key: string; size: number; text: string; kind: 'free' | 'held' | 'mine'; who?: JSX.Element }

// The number of compute slices of a MIG profile: 3 for 3g.40gb.
export function profileSize(profile: string): number {
  return Number(/(\d)g\./.exec(profile)?.[1] ?? 1)
}

const podOf = (holder: string): string => holder.split('/').slice(0, 2).join('/')

function amount(mode: string, share: number): string {
  return mode === 'TimeSlice' ? t('{n} slice|{n} slices', { n: share }) : share === 100 ? t('whole card') : `${share} %`
}

export function ledgerParts(card: LedgerCard, pod = ''): Part[] {
  if (card.slots) {
    return card.slots.map((slot) => ({
      key: slot.slot, size: profileSize(slot.profile), text: slot.profile,
      kind: slot.free ? 'free' : slot.holder && podOf(slot.holder) === pod ? 'mine' : 'held',
      ...(slot.holder ? { who: <PodLink pod={podOf(slot.holder)} /> } : {}),
    }))
  }
  const parts: Part[] = (card.holders ?? []).map((holder) => ({
    key: holder.holder, size: holder.share, text: amount(card.mode, holder.share),
    kind: holder.pod === pod ? 'mine' : 'held', who: <PodLink pod={holder.pod} />,
  }))
  return withFree(parts, card.mode, card.free ?? 0)
}

// `names` tells the pod of a holder's number, '' if it is hidden.
export function modelParts(card: Card, names: (number: number) => string, pod = ''): Part[] {
  const kindOf = (holder: number): Part['kind'] => (pod && names(holder) === pod ? 'mine' : 'held')
  if (card.mode === 'MIG') {
    return card.slots.map((slot) => ({
      key: slot.id, size: profileSize(slot.profile), text: slot.profile,
      kind: slot.holder ? kindOf(slot.holder) : 'free',
      ...(slot.holder ? { who: <HolderLink number={slot.holder} /> } : {}),
    }))
  }
  const parts: Part[] = card.holders.map(({ number, share }) => ({
    key: String(number), size: share, text: amount(card.mode, share), kind: kindOf(number), who: <HolderLink number={number} />,
  }))
  return withFree(parts, card.mode, card.free)
}

function withFree(parts: Part[], mode: string, free: number): Part[] {
  if (free <= 0) return parts
  return [...parts, { key: 'free', size: free, text: mode === 'TimeSlice' ? t('{n} slice|{n} slices', { n: free }) : `${free} %`, kind: 'free' }]
}

interface StripProps { title: JSX.Element | string; parts: Part[]; healthy?: boolean; unknown?: boolean }

export function CardStrip({ title, parts, healthy = true, unknown = false }: StripProps): JSX.Element {
  return (
    <div class="strip">
      <div class="strip-title">{title}{!healthy && <span class="strip-bad"> · {t('unhealthy')}</span>}</div>
      {unknown
        ? <div class="strip-bar unknown">{t('unknown')}</div>
        : <ul class={healthy ? 'strip-bar' : 'strip-bar unhealthy'}>
          {parts.map((part) => (
            <li key={part.key} class={part.kind} style={{ flexGrow: part.size }}>
              <span>{part.kind === 'free' ? t('{what} free', { what: part.text }) : part.text}</span> {part.who}
            </li>
          ))}
        </ul>}
    </div>
  )
}
