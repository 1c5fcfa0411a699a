// All pools with their amounts and their state in words.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { Badge, Bar, Page, PoolLink, Sentence } from '../components.tsx'
import { number, UNKNOWN } from '../format.ts'
import { t } from '../i18n.ts'
import { verdict } from '../maintenance.ts'
import type { Verdict } from '../maintenance.ts'
import { useModel } from '../model.ts'
import { navigate } from '../router.ts'
import { Table } from '../table.tsx'
import type { Column } from '../table.tsx'
import type { PoolRow } from '../wire.ts'

type Row = PoolRow & { name: string; verdict: Verdict }

export const BADGES = { good: 'ok', busy: 'warn', bad: 'bad', unknown: 'mute' } as const

export function verdictText(word: string): string {
  switch (word) {
    case 'Available': return t('serves')
    case 'NotAvailable': return t('does not serve')
    case 'Misconfigured': return t('misconfigured')
    case 'Maintenance': return t('in maintenance')
    case 'CapacityLow': return t('capacity is low')
    case 'Changing': return t('cards are changing')
    default: return t('not reconciled yet')
  }
}

export function unitText(unit: string): string {
  switch (unit) {
    case 'Card': return t('cards')
    case 'MIG': return t('MIG parts')
    case 'TimeSlice': return t('slices')
    case 'Percent': return t('percent')
    default: return unit
  }
}

function amountText(amount: number | null, unit: string): string {
  if (amount === null) return UNKNOWN
  switch (unit) {
    case 'Card': return t('{n} card|{n} cards', { n: amount })
    case 'MIG': return t('{n} MIG part|{n} MIG parts', { n: amount })
    case 'TimeSlice': return t('{n} slice|{n} slices', { n: amount })
    default: return `${number(amount)} ${unit === 'Percent' ? '%' : unit}`
  }
}

const columns = (): Column<Row>[] => [
  { id: 'pool', title: t('Pool'), value: (row) => row.name, cell: (row) => <PoolLink pool={row.name} /> },
  {
    id: 'state', title: t('State'), value: (row) => row.verdict.word,
    cell: (row) => <Badge kind={BADGES[row.verdict.severity]}>{verdictText(row.verdict.word)}</Badge>,
  },
  { id: 'sharing', title: t('Sharing'), value: (row) => row.sharing, cell: (row) => <span lang="en">{row.applied || row.sharing}</span> },
  {
    id: 'use', title: t('Use'), value: (row) => (row.total ? (row.used ?? 0) / row.total : null),
    cell: (row) => <Bar total={row.total} used={row.used} booked={row.booked} />,
  },
  ...(['available', 'used', 'booked'] as const).map((name): Column<Row> => ({
    id: name, align: 'right', value: (row) => row[name], cell: (row) => number(row[name]),
    title: { available: t('available'), used: t('used'), booked: t('booked') }[name],
  })),
  { id: 'total', title: t('total'), value: (row) => row.total, cell: (row) => amountText(row.total, row.unit) },
  { id: 'cards', title: t('Cards'), align: 'right', value: (row) => row.cards, cell: (row) => number(row.cards) },
  { id: 'nodes', title: t('Nodes'), align: 'right', value: (row) => row.nodes, cell: (row) => number(row.nodes) },
  { id: 'message', title: t('Why'), wide: true, value: (row) => row.verdict.message, cell: (row) => <Sentence text={row.verdict.message} /> },
]

export function PoolsPage(): JSX.Element {
  const model = useModel()
  const shown = useMemo(columns, [])
  const rows = useMemo(
    () => [...model.pools].map(([name, pool]) => ({ ...pool, name, verdict: verdict(pool.conditions) })),
    [model.versions.pools],
  )
  return (
    <Page title={t('Pools')} lead={t('Used: pods hold it. Booked: admitted pods are about to take it. Available: what is left.')}>
      <Table label={t('Pools')} columns={shown} rows={rows} keyOf={(row) => row.name} sort="pool"
        onOpen={(row) => navigate(`/pools/${encodeURIComponent(row.name)}`)}
        empty={t('There is no GPUPool yet. Create one with kubectl; see docs/pools.md.')} />
    </Page>
  )
}
