// One pod: why it waits and what would help, or which parts of which cards it has.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useGet, useTick } from '../answers.ts'
import { CardStrip, ledgerParts, modelParts } from '../card-strip.tsx'
import type { LedgerCard } from '../card-strip.tsx'
import {
  Badge, CardLink, Command, Empty, ErrorNote, Link, NodeName, Note, Page, Section, Sentence, Since, Until,
} from '../components.tsx'
import { number } from '../format.ts'
import { Gantt } from '../gantt.tsx'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import type { Part } from '../what-if.ts'
import { LimitBar, limitText } from './market-node.tsx'
import type { MarketNode } from './market-node.tsx'

export interface Explanation {
  pod: string
  state: string
  sentence: string
  asks?: string[]
  node?: string | null
  since?: string | number | null
  scheduler?: string | null
  notes?: string[]
  holds?: { node: string; state: string; until: string | number | null; reservation: string | null; cards: Part[] } | null
  fits?: string[]
  refusals?: { reason: string; count: number; nodes: string[] }[]
  nearest?: { node: string; detail: string; cards: LedgerCard[] }[]
  instead?: { asks: string[]; node: string }[]
  owner?: string
  quota?: string | null
}

// Times are numbers, or texts as in the JSON of the commands.
export function seconds(at: string | number | null | undefined): number | null {
  if (typeof at === 'number') return at || null
  const parsed = at ? Date.parse(at) / 1000 : NaN
  return Number.isNaN(parsed) ? null : parsed
}

export function PodPage({ namespace, name }: { namespace: string; name: string }): JSX.Element {
  const model = useModel()
  const pod = `${namespace}/${name}`
  const path = `/api/v1/explain/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`
  const answer = useGet<Explanation>(model.status === 'history' ? null : path, `${useTick(10)} ${model.waiting.has(pod)}`)
  const found = answer.data
  const waits = found ? ['Pending', 'Unreadable', 'Absent'].includes(found.state) : model.waiting.has(pod)
  return (
    <Page title={pod} lead={found && <><Badge kind={waits ? 'warn' : 'ok'}>{stateText(found.state)}</Badge> <Sentence text={found.sentence} /></>}>
      {model.status === 'history' && <Past pod={pod} />}
      <ErrorNote error={answer.error} />
      {!found && answer.asking && model.status !== 'history' && <Empty>{t('Loading …')}</Empty>}
      {found && <Facts found={found} />}
      {found?.holds && <Held pod={pod} holds={found.holds} />}
      {found && waits && <Why found={found} />}
      {found?.node && <CpuLimit pod={pod} node={found.node} />}
      <Section title={t('History')}><Gantt query={`pod=${encodeURIComponent(pod)}`} by="card" /></Section>
      <Section title={t('The same by command')}>
        <Command line={`croupier explain pod ${pod}`} /> <Command line={`kubectl describe pod -n ${namespace} ${name}`} />
      </Section>
    </Page>
  )
}

function stateText(state: string): string {
  switch (state) {
    case 'Pending': return t('waits')
    case 'Unreadable': return t('cannot be read')
    case 'Absent': return t('does not exist')
    case 'Held': return t('held')
    case 'Bound': return t('bound')
    default: return state
  }
}

function Past({ pod }: { pod: string }): JSX.Element {
  const row = useModel().waiting.get(pod)
  return row ? <Note>{t('At that time the pod waited:')} <Sentence text={row.sentence} /></Note>
    : <Note>{t('There is an explanation for now only. The history below shows what the pod held.')}</Note>
}

function Facts({ found }: { found: Explanation }): JSX.Element {
  return (
    <Section title={t('Request')}>
      <dl class="facts">
        <div><dt>{t('asks for')}</dt><dd lang="en">{found.asks?.length ? found.asks.join(', ') : t('no cards')}</dd></div>
        {found.node && <div><dt>{t('node')}</dt><dd><NodeName node={found.node} /></dd></div>}
        {seconds(found.since) && <div><dt>{t('bound')}</dt><dd><Since at={seconds(found.since)} /></dd></div>}
        {found.owner && <div><dt>{t('owner')}</dt><dd lang="en">{found.owner}</dd></div>}
        {found.quota && <div><dt>{t('quota')}</dt><dd lang="en">{found.quota}</dd></div>}
        {found.scheduler && <div><dt>{t('scheduler says')}</dt><dd><Sentence text={found.scheduler} /></dd></div>}
      </dl>
      {found.notes?.map((note) => <Note key={note}><Sentence text={note} /></Note>)}
    </Section>
  )
}

function Held({ pod, holds }: { pod: string; holds: NonNullable<Explanation['holds']> }): JSX.Element {
  const model = useModel()
  const names = (holder: number): string => {
    const known = model.holders.get(holder)
    return known ? `${known.namespace}/${known.pod}` : ''
  }
  return (
    <Section title={t('Its cards')} aside={<NodeName node={holds.node} />}>
      <p>
        <Badge kind={holds.state === 'Bound' ? 'ok' : 'info'}>{stateText(holds.state)}</Badge>{' '}
        {holds.state === 'Held' && <>{t('ends')} <Until at={seconds(holds.until)} /></>}
        {holds.reservation && <> · {t('Reservation')} <Link to="/reservations">{holds.reservation}</Link></>}
      </p>
      {holds.cards.map((part) => {
        const card = model.cards.get(part.card)
        return <CardStrip key={part.card} title={<CardLink card={part.card} />} healthy={!card?.unhealthy} unknown={!card}
          parts={card ? modelParts(card, names, pod) : []} />
      })}
    </Section>
  )
}

const SHOWN_NODES = 12

export function Why({ found }: { found: Explanation }): JSX.Element {
  const refusals = found.refusals ?? []
  const most = Math.max(1, ...refusals.map((group) => group.count))
  return (
    <>
      {found.instead && found.instead.length > 0 && (
        <Section title={t('What would fit now')}>
          <ul class="instead">
            {found.instead.map((option) => (
              <li key={option.node + option.asks.join()}><b lang="en">{option.asks.join(', ')}</b> → <NodeName node={option.node} /></li>
            ))}
          </ul>
        </Section>
      )}
      {refusals.length > 0 && (
        <Section title={t('Why no node takes it')}>
          <ul class="refusals">
            {refusals.map((group) => (
              <li key={group.reason}>
                <span class="refusal-count">{number(group.count)}</span>
                <span class="refusal-bar" aria-hidden="true"><span style={{ width: `${(100 * group.count) / most}%` }} /></span>
                <details>
                  <summary><Sentence text={group.reason} /> <small class="muted">{t('{n} node|{n} nodes', { n: group.count })}</small></summary>
                  <p class="node-names">
                    {group.nodes.slice(0, SHOWN_NODES).map((node) => <NodeName key={node} node={node} />)}
                    {group.nodes.length > SHOWN_NODES && <span>{t('and {n} more', { n: group.nodes.length - SHOWN_NODES })}</span>}
                  </p>
                </details>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {found.nearest && found.nearest.length > 0 && (
        <Section title={t('Nearest nodes')}>
          <div class="nearest">
            {found.nearest.map((miss) => (
              <article key={miss.node}>
                <h3><NodeName node={miss.node} /></h3>
                <p><Sentence text={miss.detail} /></p>
                {miss.cards.map((card) => (
                  <CardStrip key={card.card} title={<CardLink card={card.card} />} healthy={card.healthy} parts={ledgerParts(card)} />
                ))}
              </article>
            ))}
          </div>
        </Section>
      )}
      {found.fits && found.fits.length > 0 && (
        <Section title={t('Nodes that fit')}>
          <p class="node-names">{found.fits.slice(0, SHOWN_NODES).map((node) => <NodeName key={node} node={node} />)}</p>
        </Section>
      )}
    </>
  )
}

function CpuLimit({ pod, node }: { pod: string; node: string }): JSX.Element | null {
  const model = useModel()
  const answer = useGet<MarketNode>(model.market.has(node) ? `/api/v1/market/${encodeURIComponent(node)}` : null)
  const line = useMemo(() => answer.data?.pods?.find((one) => one.pod === pod), [answer.data])
  if (!line) return null
  return (
    <Section title={t('CPU limit')} aside={<Link to={`/market/${encodeURIComponent(node)}`}>{t('Market of the node')}</Link>}>
      <LimitBar line={line} widest={null} />
      <p>{limitText(line)}</p>
      <p><Sentence text={line.why ?? ''} /></p>
    </Section>
  )
}
