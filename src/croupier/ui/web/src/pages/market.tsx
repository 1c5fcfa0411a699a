// The CPU market of every node: what is for sale, what is given, at which price.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { Age, Badge, Command, Link, Page, Section } from '../components.tsx'
import { number } from '../format.ts'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import { cpus, shown } from '../quantities.ts'
import { navigate } from '../router.ts'
import { Table } from '../table.tsx'
import type { Column } from '../table.tsx'
import type { MarketRow } from '../wire.ts'

// Amounts are quantities; `left`, `short` and `price` are missing if they are 0.
export interface Book { name: string; supply: string; given: string; left?: string; short?: string; price?: number }

export function booksOf(row: Pick<MarketRow, 'books'>): Book[] {
  return Array.isArray(row.books) ? (row.books as Book[]) : []
}

type Row = MarketRow & { node: string; list: Book[]; price: number | null }

export function BookBar({ book }: { book: Book }): JSX.Element {
  const [supply, given] = [cpus(book.supply), cpus(book.given)]
  const known = supply !== null && given !== null
  const text = t('{given} of {supply} CPU given', { given: shown(given), supply: shown(supply) })
  return (
    <span class="book">
      <span class="book-name" lang="en">{book.name}</span>
      <span class={known ? 'bar' : 'bar unknown'} role="img" aria-label={text} title={text}>
        {known && <span class="bar-used" style={{ width: `${supply ? Math.min(100, (100 * given) / supply) : 0}%` }} />}
      </span>
      <small>{text}</small>
    </span>
  )
}

export function MarketBadges({ row }: { row: Pick<MarketRow, 'alive' | 'dryRun' | 'strict'> }): JSX.Element {
  return (
    <>
      <Badge kind={row.alive ? 'ok' : 'bad'}>{row.alive ? t('heartbeat') : t('no heartbeat')}</Badge>{' '}
      {row.dryRun && <Badge kind="warn">{t('dry run')}</Badge>}{' '}
      {row.strict && <Badge>{t('strict')}</Badge>}
    </>
  )
}

const columns = (): Column<Row>[] => [
  {
    id: 'node', title: t('Node'), value: (row) => row.node,
    cell: (row) => <Link class="name" to={`/market/${encodeURIComponent(row.node)}`}>{row.node}</Link>,
  },
  { id: 'price', title: t('Price'), align: 'right', value: (row) => row.price, cell: (row) => number(row.price, 3) },
  {
    id: 'state', title: t('Agent'), value: (row) => (row.alive ? t('heartbeat') : t('no heartbeat')),
    cell: (row) => <><MarketBadges row={row} /> <small class="muted"><Age at={row.lastSeen} /></small></>,
  },
  { id: 'cpu', title: t('CPU'), align: 'right', value: (row) => cpus(row.capacity as string), cell: (row) => shown(cpus(row.capacity as string)) },
  {
    id: 'outside', title: t('Outside the market'), align: 'right', value: (row) => cpus(row.outside as string),
    cell: (row) => shown(cpus(row.outside as string)),
  },
  { id: 'factor', title: t('Factor'), align: 'right', value: (row) => row.factor, cell: (row) => number(row.factor, 2) },
  { id: 'books', title: t('Books'), wide: true, cell: (row) => row.list.map((book) => <BookBar key={book.name} book={book} />) },
]

export function MarketPage(): JSX.Element {
  const model = useModel()
  const shownColumns = useMemo(columns, [])
  const rows = useMemo(() => [...model.market].map(([node, row]): Row => {
    const list = booksOf(row)
    return { ...row, node, list, price: list.length ? Math.max(...list.map((book) => book.price ?? 0)) : null }
  }), [model.versions.market])
  return (
    <Page title={t('CPU market')} lead={t('The price is the weight that 10m of CPU costs; 0 means that all demand is met.')}>
      <Table label={t('Nodes of the market')} columns={shownColumns} rows={rows} keyOf={(row) => row.node} sort="-price"
        onOpen={(row) => navigate(`/market/${encodeURIComponent(row.node)}`)}
        empty={model.named ? t('No market agent runs. Install one on each node: kubectl apply -k deployments/cpu') : t('Loading …')} />
      <Section title={t('The same by command')}><Command line="croupier market status" /></Section>
    </Page>
  )
}
