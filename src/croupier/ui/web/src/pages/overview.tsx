// The first page: six numbers that are doors, the fleet, who waits longest, and what changed.

import { useMemo } from 'preact/hooks'
import { Age, Empty, Link, NoCards, Page, PodLink, Section, Sentence } from '../components.tsx'
import { clock, freeRatio, number, percent, UNKNOWN } from '../format.ts'
import { t } from '../i18n.ts'
import { useTableView } from '../keys.tsx'
import { verdict } from '../maintenance.ts'
import { FleetMap } from '../map/map.tsx'
import { useModel } from '../model.ts'
import type { Model } from '../model.ts'
import { forYou } from '../offers.ts'
import { navigate } from '../router.ts'
import type { ChangeRow } from '../wire.ts'
import { CardTable } from './cards.tsx'

interface Numbers {
  cards: number
  free: number
  known: number
  share: number | null
  forYou: number
  notServing: number
  findings: number
}

const SERVING = ['Available', 'CapacityLow', 'Changing']

function count(model: Model): Numbers {
  let free = 0
  let sum = 0
  let known = 0
  for (const card of model.cards.values()) {
    const ratio = freeRatio(card)
    if (ratio === null) continue
    known++
    const usable = !card.unhealthy && !card.drained && !card.retired && !card.silent && card.state !== 'Faulted'
    if (!usable) continue
    if (ratio > 0.999) free++
    sum += ratio
  }
  const notServing = [...model.pools.values()].filter((pool) => !SERVING.includes(verdict(pool.conditions).word)).length
  return {
    cards: model.cards.size, free, known, share: known ? sum / known : null, notServing,
    forYou: forYou(model),
    findings: [...model.findings.values()].reduce((total, list) => total + list.length, 0),
  }
}

function Door(props: { to: string; value: string; of?: string; title: string; kind?: 'warn' | 'bad' | '' }) {
  return (
    <li class={`door ${props.kind ?? ''}`}>
      <Link to={props.to}>
        <span class="door-value">
          {props.value}
          {props.of && <small> {props.of}</small>}
        </span>
        <span class="door-title">{props.title}</span>
      </Link>
    </li>
  )
}

function Doors({ model }: { model: Model }) {
  const { versions } = model
  const numbers = useMemo(() => count(model), [versions.cards, versions.pools, versions.findings, model.status])
  const ready = model.status !== 'loading'
  const named = (value: number) => (model.named ? number(value) : UNKNOWN)
  return (
    <ul class="doors">
      <Door
        to={`/cards?q=${encodeURIComponent('free>=100')}`}
        value={ready ? number(numbers.free) : UNKNOWN}
        of={t('of {all}', { all: number(numbers.cards) })}
        title={t('cards completely free')}
      />
      <Door to="/pools" value={ready ? percent(numbers.share, 1) : UNKNOWN} title={t('of the capacity is free')} />
      <Door to="/waiting" value={named(model.waiting.size)} title={t('pod waits for cards|pods wait for cards', { n: model.waiting.size })} kind={model.waiting.size ? 'warn' : ''} />
      <Door to="/confirm" value={ready ? number(numbers.forYou) : UNKNOWN} title={t('waits for you|wait for you', { n: numbers.forYou })} kind={numbers.forYou ? 'warn' : ''} />
      <Door to="/pools?sort=state" value={ready ? number(numbers.notServing) : UNKNOWN} title={t('pool does not serve|pools do not serve', { n: numbers.notServing })} kind={numbers.notServing ? 'bad' : ''} />
      <Door to="/audit" value={named(numbers.findings)} title={t('finding of the audit|findings of the audit', { n: numbers.findings })} kind={numbers.findings ? 'bad' : ''} />
    </ul>
  )
}

function Waiters({ model }: { model: Model }) {
  const rows = useMemo(
    () => [...model.waiting].sort(([, a], [, b]) => (a.since ?? Infinity) - (b.since ?? Infinity)).slice(0, 5),
    [model.versions.waiting, model.status],
  )
  if (!model.named) return <Empty>{t('Loading …')}</Empty>
  if (rows.length === 0) return <Empty>{t('No pod waits for a card.')}</Empty>
  return (
    <ol class="waiters">
      {rows.map(([pod, row]) => (
        <li key={pod}>
          <div class="waiter-head">
            <PodLink pod={pod} />
            <span class="muted">
              {row.asks.join(', ')} · <Age at={row.since} />
            </span>
          </div>
          <Sentence text={row.sentence || row.scheduler} />
        </li>
      ))}
    </ol>
  )
}

export function Changes({ changes, empty }: { changes: ChangeRow[]; empty: string }) {
  if (changes.length === 0) return <Empty>{empty}</Empty>
  return (
    <ol class="changes-list">
      {changes.map((change) => (
        <li key={change.number}>
          <time dateTime={new Date(change.at * 1000).toISOString()}>{clock(change.at)}</time>
          <ChangedObject change={change} /> <Sentence text={change.text} />
        </li>
      ))}
    </ol>
  )
}

function ChangedObject({ change }: { change: ChangeRow }) {
  const { kind, object } = change
  const to: Record<string, string> = {
    card: `/cards/${encodeURIComponent(object)}`, GPUDevice: `/cards/${encodeURIComponent(object)}`,
    pool: `/pools/${encodeURIComponent(object)}`, GPUPool: `/pools/${encodeURIComponent(object)}`,
    node: `/cards?q=${encodeURIComponent(`node:${object}`)}`, Node: `/cards?q=${encodeURIComponent(`node:${object}`)}`,
    pod: `/pods/${object}`, Pod: `/pods/${object}`, reservation: '/reservations', Reservation: '/reservations',
  }
  const path = to[kind]
  return path ? <Link class="name" to={path}>{object}</Link> : <span class="name">{object}</span>
}

export function OverviewPage() {
  const model = useModel()
  const [table, showTable] = useTableView()
  const unreadable = Object.entries(model.cluster?.unreadable ?? {})
  return (
    <Page title={t('Overview')}>
      {unreadable.map(([kind, sentence]) => (
        <div key={kind} class="note warning">
          <strong>{kind}</strong> <Sentence text={sentence} />
        </div>
      ))}
      <Doors model={model} />
      <Section
        title={t('Cards by use')}
        aside={
          <span class="row">
            <button type="button" class="small quiet" aria-pressed={table} onClick={() => showTable(!table)}>
              {t('Table')}
            </button>
            <Link to="/cards">{t('Open the map')}</Link>
          </span>
        }
      >
        {table ? (
          <CardTable cards={[...model.cards.values()]} />
        ) : model.cards.size === 0 && model.status !== 'loading' ? (
          <NoCards />
        ) : (
          <FleetMap compact height={260} onOpen={(card) => navigate(`/cards/${encodeURIComponent(card)}`)} />
        )}
      </Section>
      <div class="two">
        <Section title={t('Longest waiting')} aside={<Link to="/waiting">{t('All waiting pods')}</Link>}>
          <Waiters model={model} />
        </Section>
        <Section title={t('Last changes')} aside={<Link to="/history">{t('History')}</Link>}>
          <Changes changes={model.changes.slice(0, 20)} empty={model.named ? t('Nothing has changed since the server of this page started.') : t('Loading …')} />
        </Section>
      </div>
    </Page>
  )
}
