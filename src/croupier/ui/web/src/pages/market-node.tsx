// The CPU market of one node: its books over time, and each pod's limit and what it uses.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useGet, useTick } from '../answers.ts'
import { Badge, Command, Empty, ErrorNote, Note, Page, PodLink, Section, Sentence } from '../components.tsx'
import { number, percent, UNKNOWN } from '../format.ts'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import { Plot } from '../plot.tsx'
import type { Line } from '../plot.tsx'
import { cpus, shown } from '../quantities.ts'
import { Table } from '../table.tsx'
import type { Column } from '../table.tsx'
import { BookBar, MarketBadges } from './market.tsx'
import type { Book } from './market.tsx'

export interface MarketPod {
  pod: string
  book?: string
  limit?: string
  applied?: string
  target?: string
  original?: string
  usage?: string
  demand?: string
  throttledPercent?: number
  moves?: boolean
  why?: string
}

export interface MarketNode {
  node: string
  alive: boolean
  capacity?: string
  outside?: string
  factor?: number
  strict?: boolean
  dryRun?: boolean
  books?: Book[]
  pods?: MarketPod[]
  series?: Record<string, (number | null)[]>
}

// The report leaves out amounts that are 0.
const amount = (written: string | undefined): number | null => cpus(written ?? '0')

const COLOURS = ['--hue-0', '--hue-1', '--hue-2', '--hue-3']

export function MarketNodePage({ node }: { node: string }): JSX.Element {
  const model = useModel()
  const live = model.status !== 'history'
  const answer = useGet<MarketNode>(live ? `/api/v1/market/${encodeURIComponent(node)}` : null, useTick(10))
  const data = answer.data
  return (
    <Page title={t('CPU market of {node}', { node })} lead={data && <MarketBadges row={{ strict: false, dryRun: false, ...data }} />}>
      {!live && <Note>{t('The market of a node is shown for now only.')}</Note>}
      <ErrorNote error={answer.error} />
      {!data && answer.asking && live && <Empty>{t('Loading …')}</Empty>}
      {data && !data.alive && <Note kind="warning">{t('The agent sends no heartbeat: its pods get back their original limits.')}</Note>}
      {data?.dryRun && <Note kind="warning">{t('Dry run: limits are computed and shown, not written.')}</Note>}
      {data && !data.books && <Note kind="warning">{t('The Lease of the agent contains no report that this version can read.')}</Note>}
      {data?.books && <Books data={data} />}
      {data?.series && <Plots series={data.series} books={data.books ?? []} />}
      {data?.pods && <Pods pods={data.pods} />}
      <Section title={t('The same by command')}><Command line={`croupier market status ${node}`} /></Section>
    </Page>
  )
}

function Books({ data }: { data: MarketNode }): JSX.Element {
  return (
    <Section title={t('Books')}>
      <ul class="books">
        {data.books!.map((book) => (
          <li key={book.name}>
            <BookBar book={book} />{' '}
            {book.price ? t('price {price}', { price: number(book.price, 3) }) : t('price 0: all demand is met')}
            {book.short && book.short !== '0' && <> · <Badge kind="bad">{t('{amount} CPU short of the minimum limits', { amount: shown(cpus(book.short)) })}</Badge></>}
          </li>
        ))}
      </ul>
      <dl class="numbers">
        <div><dt>{t('CPU of the node')}</dt><dd>{shown(cpus(data.capacity))}</dd></div>
        <div><dt>{t('used outside the market')}</dt><dd>{shown(amount(data.outside))}</dd></div>
        <div><dt>{t('overcommit factor')}</dt><dd>{number(data.factor ?? 1, 2)}</dd></div>
      </dl>
    </Section>
  )
}

function Plots({ series, books }: { series: Record<string, (number | null)[]>; books: Book[] }): JSX.Element {
  const at = (series['at'] ?? []) as number[]
  const names = books.map((book) => book.name)
  const lines = (kind: string): Line[] => names.flatMap((name, index) => {
    const values = series[`${name}.${kind}`]
    return values ? [{ label: name, values, colour: COLOURS[index % COLOURS.length]! }] : []
  })
  const sold = useMemo(() => [
    ...lines('supply').map((line) => ({ ...line, label: t('{book}: for sale', { book: line.label }), dashed: true })),
    ...lines('given').map((line) => ({ ...line, label: t('{book}: given', { book: line.label }), filled: true })),
  ], [series])
  const prices = useMemo(() => lines('price'), [series])
  const factor = useMemo((): Line[] => [{ label: t('factor'), values: series['factor'] ?? [], colour: COLOURS[2]! }], [series])
  if (at.length < 2) return <Section title={t('Over time')}><Empty>{t('There are too few measurements for a plot yet.')}</Empty></Section>
  return (
    <Section title={t('Over time')} class="plots">
      <Plot title={t('Supply and given CPU')} unit="CPU" at={at} lines={sold} />
      <Plot title={t('Price')} unit="" at={at} lines={prices} digits={3} />
      <Plot title={t('Overcommit factor')} unit="" at={at} lines={factor} />
    </Section>
  )
}

export function limitText(line: MarketPod): string {
  return t('uses {usage} of its limit {limit}; should have {target}', {
    usage: shown(amount(line.usage)), limit: shown(amount(line.limit)), target: shown(amount(line.target)),
  })
}

// The limit as a bar, what the pod uses inside it, a mark for what it should have.
export function LimitBar({ line, widest }: { line: MarketPod; widest: number | null }): JSX.Element {
  const [limit, usage, target] = [amount(line.limit), amount(line.usage), amount(line.target)]
  const text = limitText(line)
  const scale = widest ?? Math.max(limit ?? 0, usage ?? 0, target ?? 0)
  const at = (value: number | null): string => `${scale ? Math.min(100, (100 * (value ?? 0)) / scale) : 0}%`
  return (
    <span class="limit-bar" role="img" aria-label={text} title={text}>
      <span class="limit" style={{ width: at(limit) }} />
      <span class="usage" style={{ width: at(usage) }} />
      <span class="target" style={{ left: at(target) }} />
    </span>
  )
}

const pauseLine = (pod: string): string => {
  const [namespace, name] = pod.split('/')
  return `kubectl annotate pod -n ${namespace} ${name} mbcas.io/paused=true --overwrite`
}

function Pods({ pods }: { pods: MarketPod[] }): JSX.Element {
  const widest = Math.max(0, ...pods.flatMap((pod) => [amount(pod.limit) ?? 0, amount(pod.usage) ?? 0]))
  const columns = useMemo((): Column<MarketPod>[] => {
    const cpu = (id: string, title: string, pick: (pod: MarketPod) => string | undefined): Column<MarketPod> => ({
      id, title, align: 'right', value: (pod) => amount(pick(pod)), cell: (pod) => shown(amount(pick(pod))),
    })
    return [
      { id: 'pod', title: t('Pod'), value: (pod) => pod.pod, cell: (pod) => <PodLink pod={pod.pod} /> },
      { id: 'book', title: t('Class'), value: (pod) => pod.book, cell: (pod) => <span lang="en">{pod.book || UNKNOWN}</span> },
      { id: 'bar', title: t('Limit and use'), cell: (pod) => <LimitBar line={pod} widest={widest} /> },
      cpu('usage', t('uses'), (pod) => pod.usage),
      cpu('demand', t('wants'), (pod) => pod.demand),
      {
        id: 'throttled', title: t('throttled'), align: 'right', value: (pod) => pod.throttledPercent ?? 0,
        cell: (pod) => percent((pod.throttledPercent ?? 0) / 100, 1),
      },
      {
        id: 'limit', title: t('limit'), align: 'right', value: (pod) => amount(pod.limit),
        cell: (pod) => pod.applied && pod.applied !== pod.limit
          ? `${shown(cpus(pod.applied))} → ${shown(amount(pod.limit))}` : shown(amount(pod.limit)),
      },
      cpu('target', t('should have'), (pod) => pod.target),
      cpu('original', t('came with'), (pod) => pod.original),
      { id: 'why', title: t('Why'), wide: true, value: (pod) => pod.why, cell: (pod) => <Sentence text={pod.why ?? ''} /> },
      { id: 'pause', title: t('Pause it'), cell: (pod) => <Command line={pauseLine(pod.pod)} brief /> },
    ]
  }, [widest])
  return (
    <Section title={t('Pods')}>
      <Table label={t('Pods of the market')} columns={columns} rows={pods} keyOf={(pod) => pod.pod} sort="-throttled"
        empty={t('No managed pods: label pods with mbcas.io/managed: "true".')} />
    </Section>
  )
}
