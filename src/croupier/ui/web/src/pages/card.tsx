// One card: drawn as it is partitioned, its state in words, what it waits for, its history and what can be done.

import { useGet } from '../answers.ts'
import { Badge, Empty, ErrorNote, HolderLink, Link, NodeName, Note, Page, PoolLink, Section, Sentence, Since, Until } from '../components.tsx'
import { clock, freeText, number, share } from '../format.ts'
import { Gantt } from '../gantt.tsx'
import { t } from '../i18n.ts'
import { useTableView } from '../keys.tsx'
import { STATE_TITLES, stateKey } from '../map/legend.ts'
import type { StateKey } from '../map/legend.ts'
import { useModel } from '../model.ts'
import type { Model } from '../model.ts'
import type { Card } from '../wire.ts'
import { CardActions } from './cards.tsx'
import { Changes } from './overview.tsx'

interface CardAnswer {
  conditions?: { type: string; status: string; reason?: string; message?: string; lastTransitionTime?: string }[]
  health?: Record<string, unknown>
  pending?: { pool: string; reason: string; sentence: string; hint: string }[]
  [field: string]: unknown
}

const KINDS: Partial<Record<StateKey, 'bad' | 'warn' | 'info' | 'ok'>> = {
  faulted: 'bad', drained: 'warn', silent: 'bad', withdrawn: 'info', changing: 'info', assigned: 'ok', reserved: 'info',
}

function States({ card }: { card: Card }) {
  const key = stateKey(card)
  const more: [boolean, string][] = [
    [card.retired && key !== 'retired', t('Retired')],
    [card.drained && key !== 'drained', t('Drained')],
    [card.silent && key !== 'silent', t('Agent silent')],
    [card.withdrawn && key !== 'withdrawn', t('Withdrawn')],
    [card.changing && key !== 'changing', t('Partitions are changing')],
    [card.unmanaged && key !== 'unmanaged', t('Not managed')],
  ]
  return (
    <span class="row">
      <Badge kind={KINDS[key] ?? 'mute'}>{t(STATE_TITLES[key])}</Badge>
      {more.filter(([holds]) => holds).map(([, text]) => <Badge key={text}>{text}</Badge>)}
    </span>
  )
}

interface DrawnPart {
  key: string
  start: number
  size: number
  holder: number
  text: string
}

// The parts with their place on the card, from the top.
function drawn(card: Card): { whole: number; parts: DrawnPart[] } {
  if (card.mode === 'MIG') {
    const whole = card.capacity || Math.max(8, ...card.slots.map((slot) => slot.start + slot.size))
    const parts = card.slots.map((slot) => ({ key: slot.id, start: slot.start, size: slot.size, holder: slot.holder, text: slot.profile }))
    return { whole, parts: parts.sort((a, b) => a.start - b.start) }
  }
  let start = 0
  const parts: DrawnPart[] = card.holders.map((holder) => {
    const part = { key: String(holder.number), start, size: holder.share, holder: holder.number, text: share(card, holder.share) }
    start += holder.share
    return part
  })
  if (card.free > 0) parts.push({ key: 'free', start, size: card.free, holder: 0, text: freeText(card) })
  return { whole: card.capacity || 100, parts }
}

export function CardPicture({ card, model }: { card: Card; model: Model }) {
  if (card.mode === 'none') {
    return <div class="card-picture unknown">{t('The ledger does not have this card: what it holds is unknown.')}</div>
  }
  const { whole, parts } = drawn(card)
  return (
    <ol class={`card-picture ${card.unhealthy ? 'unhealthy' : ''} ${card.silent ? 'stale' : ''}`} aria-label={t('The card as it is partitioned')}>
      {parts.map((part) => {
        const holder = model.holders.get(part.holder)
        return (
          <li
            key={part.key}
            class={part.holder === 0 ? 'free' : holder && !holder.bound ? 'held' : 'used'}
            style={{ top: `${(100 * part.start) / whole}%`, height: `${(100 * part.size) / whole}%` }}
          >
            <span class="part-text">{part.text}</span>
            {part.holder === 0 ? <span>{card.mode === 'MIG' ? t('free') : ''}</span> : <HolderLink number={part.holder} />}
            {holder && !holder.bound && (
              <small>
                {t('held, ends')} <Until at={holder.until} />
              </small>
            )}
          </li>
        )
      })}
    </ol>
  )
}

function HolderTable({ card }: { card: Card }) {
  const { parts } = drawn(card)
  return (
    <div class="table-scroll">
      <table aria-label={t('Parts of the card')}>
        <thead>
          <tr>
            <th scope="col">{t('Part')}</th>
            <th scope="col">{t('Start')}</th>
            <th scope="col">{t('Holder')}</th>
          </tr>
        </thead>
        <tbody>
          {parts.map((part) => (
            <tr key={part.key}>
              <td>{part.text}</td>
              <td>{number(part.start)}</td>
              <td>{part.holder ? <HolderLink number={part.holder} /> : t('free')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Facts({ card, model }: { card: Card; model: Model }) {
  const node = model.nodes.get(card.node)
  return (
    <dl class="facts">
      <dt>{t('State')}</dt>
      <dd>
        <States card={card} /> {card.reason && <Sentence text={card.reason} />}
      </dd>
      <dt>{t('Pool')}</dt>
      <dd>
        <PoolLink pool={card.pool} />
        {card.assigned && <div>{t('assigned by annotation to')} <PoolLink pool={card.assigned} /></div>}
        {card.ledgerPool && <div>{t('in the ledger')}: <PoolLink pool={card.ledgerPool} /></div>}
      </dd>
      <dt>{t('Sharing')}</dt>
      <dd>{card.mode === 'none' ? t('not in the ledger') : `${card.mode} · ${t('free')}: ${freeText(card)}`}</dd>
      <dt>{t('Node')}</dt>
      <dd>
        <NodeName node={card.node} />
        {node && <span class="muted"> {[node.zone, node.cordoned ? t('cordoned') : '', node.recorded ? t('ledger recorded') : t('ledger counted')].filter(Boolean).join(' · ')}</span>}
      </dd>
      <dt>{t('Model')}</dt>
      <dd>{card.product || t('unknown')}</dd>
      {card.offers.length > 0 && (
        <>
          <dt>{t('Waits for you')}</dt>
          <dd>{card.offers.map((pool) => <div key={pool}><PoolLink pool={pool} /> <Link to="/confirm">{t('Approve')}</Link></div>)}</dd>
        </>
      )}
    </dl>
  )
}

// Plain fields of an answer as a list: a reading that this page does not know is shown too.
function Readings({ values }: { values: Record<string, unknown> }) {
  const plain = Object.entries(values).filter(([, value]) => value !== null && value !== '' && typeof value !== 'object')
  const lists = Object.entries(values).filter(([, value]) => Array.isArray(value) && value.length > 0)
  return (
    <dl class="facts" lang="en">
      {plain.map(([name, value]) => [<dt key={`${name}t`}>{name}</dt>, <dd key={name}>{String(value)}</dd>])}
      {lists.map(([name, value]) => [<dt key={`${name}t`}>{name}</dt>, <dd key={name}>{(value as unknown[]).map((one) => (typeof one === 'object' ? JSON.stringify(one) : String(one))).join(', ')}</dd>])}
    </dl>
  )
}

function Details({ id, card }: { id: string; card: Card }) {
  const model = useModel()
  const answer = useGet<CardAnswer>(model.status === 'history' ? null : `/api/v1/cards/${encodeURIComponent(id)}`, JSON.stringify(card))
  const conditions = answer.data?.conditions ?? []
  const pending = answer.data?.pending ?? []
  return (
    <>
      <ErrorNote error={answer.error} />
      {pending.length > 0 && (
        <Section title={t('What it waits for')}>
          <ul class="plain">
            {pending.map((entry) => (
              <li key={`${entry.pool}${entry.reason}`}>
                <PoolLink pool={entry.pool} /> <Sentence text={[entry.sentence, entry.hint].filter(Boolean).join(' ')} />
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section title={t('Conditions')}>
        {conditions.length === 0 ? (
          <Empty>{answer.asking ? t('Loading …') : t('The card has no conditions.')}</Empty>
        ) : (
          <ul class="plain">
            {conditions.map((condition) => (
              <li key={condition.type}>
                <strong lang="en">{condition.type}: {condition.status}</strong> <span class="muted" lang="en">{condition.reason}</span>{' '}
                {condition.lastTransitionTime && <Since at={Date.parse(condition.lastTransitionTime) / 1000} />}
                <div><Sentence text={condition.message ?? ''} /></div>
              </li>
            ))}
          </ul>
        )}
      </Section>
      {answer.data?.health && (
        <Section title={t('Health')}>
          <Readings values={answer.data.health} />
        </Section>
      )}
    </>
  )
}

// The card as the drawer shows it; the page adds what the server answers about it.
export function CardDetails({ id, brief }: { id: string; brief?: boolean }) {
  const model = useModel()
  const card = model.cards.get(id)
  if (!card) return <Empty>{model.status === 'loading' ? t('Loading …') : t('There is no card {card}, or you may not see it.', { card: id })}</Empty>
  return (
    <div class="card-details">
      <CardPicture card={card} model={model} />
      <Facts card={card} model={model} />
      <CardActions cards={[id]} small={brief ?? false} />
      <p class="hidden" aria-live="polite">
        {t('{card}: {state}, free: {free}', { card: id, state: t(STATE_TITLES[stateKey(card)]), free: freeText(card) })}
      </p>
    </div>
  )
}

export function CardPage({ card: id }: { card: string }) {
  const model = useModel()
  const card = model.cards.get(id)
  const [table, showTable] = useTableView()
  const changes = model.changes.filter((change) => change.object === id).slice(0, 20)
  return (
    <Page
      title={id}
      lead={card && <>{card.product} · <NodeName node={card.node} /></>}
      actions={
        card && (
          <button type="button" aria-pressed={table} onClick={() => showTable(!table)}>
            {t('Table')}
          </button>
        )
      }
    >
      {model.status === 'history' && <Note>{t('As it was at {time}.', { time: clock(model.at) })}</Note>}
      <div class="two">
        <Section title={t('Partitions')}>{table && card ? <HolderTable card={card} /> : <CardDetails id={id} />}</Section>
        <div>
          {card && <Details id={id} card={card} />}
          <Section title={t('Last changes')}>
            <Changes changes={changes} empty={t('No change is known.')} />
          </Section>
        </div>
      </div>
      {card && (
        <Section title={t('Who held it')}>
          <Gantt query={`card=${encodeURIComponent(id)}`} by="pod" />
        </Section>
      )}
    </Page>
  )
}
