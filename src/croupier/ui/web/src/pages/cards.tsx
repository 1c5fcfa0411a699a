// The map of all cards: colours and groups, a legend that filters, a selection with its actions, a drawer for one card.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useMe } from '../answers.ts'
import { Bar, CardLink, Choice, Link, NoCards, NodeName, Page, PoolLink } from '../components.tsx'
import { openAction } from '../dialogs/action.tsx'
import { freeRatio, freeText, number } from '../format.ts'
import { t } from '../i18n.ts'
import { useKey, useTableView } from '../keys.tsx'
import { FleetMap } from '../map/map.tsx'
import { legend, STATE_TITLES, stateKey } from '../map/legend.ts'
import type { Colour, Entry } from '../map/legend.ts'
import type { By } from '../map/layout.ts'
import { useModel } from '../model.ts'
import type { Model } from '../model.ts'
import type { ActionName } from '../orders.ts'
import { navigate, setQuery, useRoute } from '../router.ts'
import { parse } from '../search.ts'
import { Table } from '../table.tsx'
import type { Column } from '../table.tsx'
import type { Card } from '../wire.ts'
import { CardDetails } from './card.tsx'

const COLOURS: Colour[] = ['use', 'pool', 'state', 'model']

export function CardTable({ cards, selected, onSelect }: { cards: Card[]; selected?: ReadonlySet<string>; onSelect?: (selected: Set<string>) => void }) {
  const columns = useMemo<Column<Card>[]>(
    () => [
      { id: 'card', title: t('Card'), value: (card) => card.id, cell: (card) => <CardLink card={card.id} />, wide: true },
      { id: 'node', title: t('Node'), value: (card) => card.node, cell: (card) => <NodeName node={card.node} /> },
      { id: 'index', title: t('Index'), value: (card) => card.index, cell: (card) => number(card.index < 0 ? null : card.index), align: 'right' },
      { id: 'model', title: t('Model'), value: (card) => card.product, cell: (card) => card.product },
      { id: 'pool', title: t('Pool'), value: (card) => card.pool, cell: (card) => <PoolLink pool={card.pool} /> },
      { id: 'mode', title: t('Mode'), value: (card) => card.mode, cell: (card) => (card.mode === 'none' ? t('not in the ledger') : card.mode) },
      { id: 'state', title: t('State'), value: (card) => stateKey(card), cell: (card) => t(STATE_TITLES[stateKey(card)]) },
      { id: 'free', title: t('Free'), value: (card) => freeRatio(card), cell: (card) => freeText(card), align: 'right' },
    ],
    [],
  )
  return (
    <Table
      label={t('Cards')}
      columns={columns}
      rows={cards}
      keyOf={(card) => card.id}
      sort="card"
      onOpen={(card) => navigate(`/cards/${encodeURIComponent(card.id)}`)}
      {...(selected && onSelect ? { selected, onSelect } : {})}
    />
  )
}

function Legend({ entries, colour, query, model }: { entries: Entry[]; colour: Colour; query: string; model: Model }) {
  const hues = useMemo(() => new Map([...entries.map((entry) => entry.key)].filter(Boolean).sort().map((key, place) => [key, place % 12])), [entries])
  const toggle = (term: string) => setQuery({ q: query === term ? null : term })
  const mark = (entry: Entry) =>
    colour === 'use' || colour === 'state' ? `swatch ${colour}-${entry.key}` : `swatch ${entry.key ? `hue-${hueOf(colour, entry.key, model, hues)}` : 'hue-none'}`
  return (
    <ul class="legend" aria-label={t('Legend: shows only these cards')}>
      {entries.map((entry) => (
        <li key={entry.key} data-pool={colour === 'pool' && entry.key ? entry.key : undefined}>
          <button type="button" title={entry.named ? entry.title : undefined} aria-pressed={query === entry.term} onClick={() => toggle(entry.term)}>
            <span class={mark(entry)} aria-hidden="true" />
            <span class="legend-title">{entry.named ? entry.title : t(entry.title)}</span>
            <span class="legend-count">{number(entry.cards)}</span>
          </button>
        </li>
      ))}
    </ul>
  )
}

// The canvas numbers all pools of the cluster, the legend only those with cards.
function hueOf(colour: Colour, key: string, model: Model, shown: Map<string, number>): number {
  if (colour !== 'pool') return shown.get(key) ?? 0
  const place = [...model.pools.keys()].sort().indexOf(key)
  return place === -1 ? 0 : place % 12
}

function PoolTargets({ model, selecting }: { model: Model; selecting: boolean }) {
  const pools = [...model.pools].sort(([a], [b]) => (a < b ? -1 : 1))
  if (pools.length === 0) return null
  return (
    <section aria-label={t('Pools')} class={selecting ? 'targets active' : 'targets'}>
      <h2>{selecting ? t('Drop the selection on a pool') : t('Pools')}</h2>
      <ul>
        {pools.map(([name, pool]) => (
          <li key={name} data-pool={name}>
            <PoolLink pool={name} />
            <Bar total={pool.total} used={pool.used} booked={pool.booked} />
          </li>
        ))}
      </ul>
    </section>
  )
}

const ACTIONS: [ActionName, () => string][] = [
  ['assign', () => t('Assign to …')],
  ['unassign', () => t('Unassign')],
  ['drain', () => t('Drain')],
  ['undrain', () => t('Give back')],
  ['retire', () => t('Retire')],
]

// Buttons of what can be done with cards. Without the right to write they are not shown.
export function CardActions({ cards, small }: { cards: string[]; small?: boolean }) {
  const me = useMe()
  const model = useModel()
  const allowed = (me?.actions.includes('cards') ?? false) && model.status !== 'history'
  return (
    <div class="row">
      {allowed && ACTIONS.map(([action, title]) => (
        <button key={action} type="button" class={`${action === 'assign' ? 'primary' : ''} ${small ? 'small' : ''}`} onClick={() => openAction({ action, cards })}>
          {title()}
        </button>
      ))}
      <button type="button" class={small ? 'small' : ''} onClick={() => navigate(`/what-if?add=${encodeURIComponent(cards.join(','))}`)}>
        {t('What if')}
      </button>
    </div>
  )
}

function SelectionBar({ selected, onClear }: { selected: ReadonlySet<string>; onClear: () => void }) {
  if (selected.size === 0) return null
  return (
    <div class="selection" role="region" aria-label={t('Selection')}>
      <strong aria-live="polite">{t('{n} card selected|{n} cards selected', { n: selected.size })}</strong>
      <CardActions cards={[...selected]} small />
      <button type="button" class="small quiet" onClick={onClear}>
        {t('Clear')}
      </button>
    </div>
  )
}

function Drawer({ card, onClose }: { card: string; onClose: () => void }) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => heading.current?.focus({ preventScroll: true }), [card])
  return (
    <aside
      class="drawer"
      aria-label={t('Card {card}', { card })}
      onKeyDown={(event) => {
        if (event.key !== 'Escape') return
        onClose()
        document.querySelector<HTMLElement>('.map-frame')?.focus()
      }}
    >
      <header class="panel-head">
        <h2 ref={heading} tabIndex={-1}>
          <CardLink card={card} />
        </h2>
        <button type="button" class="quiet" aria-label={t('Close')} onClick={onClose}>
          ✕
        </button>
      </header>
      <CardDetails id={card} brief />
    </aside>
  )
}

// Values of node labels by which the server allows to group.
function labelGroups(model: Model): string[] {
  const names = new Set<string>()
  for (const node of model.nodes.values()) for (const name of Object.keys(node.groups ?? {})) names.add(name)
  return [...names].sort()
}

function useMatch(model: Model, query: string): ((card: Card) => boolean) | null {
  return useMemo(() => {
    const test = parse(query)
    if (!test) return null
    const context = { holder: (number: number) => model.holders.get(number), node: (name: string) => model.nodes.get(name) }
    return (card: Card) => test(card, context)
  }, [query, model.holders, model.nodes])
}

export function CardsPage() {
  const model = useModel()
  const { query } = useRoute()
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set<string>())
  const [table, showTable] = useTableView()
  const by = (query.get('by') ?? 'pool') as By
  const colour = COLOURS.find((one) => one === query.get('colour')) ?? 'use'
  const text = query.get('q') ?? ''
  const opened = query.get('card')
  const match = useMatch(model, text)
  const entries = useMemo(() => legend(model.cards.values(), colour), [model.versions.cards, model.status, colour])
  const matching = useMemo(
    () => (match ? [...model.cards.values()].filter(match) : [...model.cards.values()]),
    [match, model.versions.cards, model.versions.holders, model.status],
  )
  const act = (action: ActionName) => {
    const cards = selected.size ? [...selected] : opened ? [opened] : []
    if (cards.length) openAction({ action, cards })
  }
  useKey('a', () => act('assign'))
  useKey('d', () => act('drain'))
  const groups: [By, string][] = [
    ['pool', t('Pool')], ['zone', t('Zone')], ['model', t('Model')], ['none', t('Name')],
    ...labelGroups(model).map((name): [By, string] => [`label:${name}`, name]),
  ]
  return (
    <Page
      title={t('Cards')}
      lead={
        match
          ? t('{shown} of {all} cards match', { shown: number(matching.length), all: number(model.cards.size) })
          : `${t('{n} card|{n} cards', { n: model.cards.size })} · ${t('{n} node|{n} nodes', { n: model.nodes.size })}`
      }
      actions={
        <>
          <Choice label={t('Group by')} value={by} options={groups} onChange={(value) => setQuery({ by: value === 'pool' ? null : value })} />
          <Choice
            label={t('Colour by')}
            value={colour}
            options={[['use', t('Use')], ['pool', t('Pool')], ['state', t('State')], ['model', t('Model')]]}
            onChange={(value) => setQuery({ colour: value === 'use' ? null : value })}
          />
          <button type="button" aria-pressed={table} onClick={() => showTable(!table)}>
            {t('Table')}
          </button>
        </>
      }
    >
      <SelectionBar selected={selected} onClear={() => setSelected(new Set<string>())} />
      <div class={opened ? 'cards-page with-drawer' : 'cards-page'}>
        {table ? (
          <CardTable cards={matching} selected={selected} onSelect={setSelected} />
        ) : model.cards.size === 0 && model.status !== 'loading' ? (
          <NoCards />
        ) : (
          <FleetMap
            by={by}
            colour={colour}
            match={match}
            selected={selected}
            onSelect={setSelected}
            onOpen={(card) => setQuery({ card }, { replace: false })}
            onDrop={(pool, cards) => openAction({ action: 'assign', cards, pool })}
          />
        )}
        {opened ? (
          <Drawer card={opened} onClose={() => setQuery({ card: null })} />
        ) : (
          <div class="side">
            <h2>{t('Legend')}</h2>
            <Legend entries={entries} colour={colour} query={text} model={model} />
            {text && (
              <p>
                <Link to="/cards">{t('Show all cards')}</Link>
              </p>
            )}
            {colour !== 'state' && <Shapes />}
            <PoolTargets model={model} selecting={selected.size > 0} />
          </div>
        )}
      </div>
    </Page>
  )
}

// Signs that are drawn in every colouring.
function Shapes() {
  return (
    <ul class="legend shapes" aria-label={t('Signs')}>
      {(['faulted', 'drained', 'retired', 'silent', 'changing', 'offered'] as const).map((key) => (
        <li key={key}>
          <button type="button" onClick={() => setQuery({ q: `state:${key}` })}>
            <span class={`swatch state-${key}`} aria-hidden="true" />
            <span class="legend-title">{key === 'offered' ? t('Waits for you') : t(STATE_TITLES[key])}</span>
          </button>
        </li>
      ))}
    </ul>
  )
}
