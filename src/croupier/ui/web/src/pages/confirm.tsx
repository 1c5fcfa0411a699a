// Cards that wait for approval and pools that wait for a confirmation: one click each, then the dialog.

import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { Age, Badge, CardLink, Command, Empty, NodeName, Page, PoolLink, Section, Sentence } from '../components.tsx'
import { openAction } from '../dialogs/action.tsx'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import { offers, unconfirmed } from '../offers.ts'
import type { Offer } from '../offers.ts'
import type { ChangeRow, PoolRow } from '../wire.ts'

export function ConfirmPage(): JSX.Element {
  const model = useModel()
  const waiting = useMemo(() => offers(model.cards.values()), [model.versions.cards])
  const pools = useMemo(() => unconfirmed(model.pools), [model.versions.pools])
  return (
    <Page title={t('Waiting for you')} lead={t('Cards that a pool may take once you approve, and repaired pools that you have to confirm.')}>
      {pools.map(([name, pool]) => <Unconfirmed key={name} name={name} pool={pool} />)}
      {waiting.map((offer) => <Approval key={offer.pool} offer={offer} seen={firstSeen(model.changes)} />)}
      {!pools.length && !waiting.length && <Empty>{t('Nothing waits for you.')}</Empty>}
    </Page>
  )
}

function Unconfirmed({ name, pool }: { name: string; pool: PoolRow }): JSX.Element {
  const condition = pool.conditions.find((one) => one.reason === 'AwaitingConfirmation')
  return (
    <Section title={t('Pool {pool} was repaired', { pool: name })} aside={
      <button type="button" class="primary" onClick={() => openAction({ action: 'confirm', pool: name })}>
        {t('Confirm generation {n}', { n: pool.generation })}
      </button>
    }>
      <p><PoolLink pool={name} /> · <Age at={condition?.since} /></p>
      <p><Sentence text={condition?.message ?? ''} /></p>
      <Command line={`croupier pools confirm ${name}`} />
    </Section>
  )
}

// When a card first appeared among the last changes; older ones are unknown.
function firstSeen(changes: readonly ChangeRow[]): (card: string) => number | null {
  return (card) => changes.findLast((change) => change.object === card)?.at ?? null
}

function Approval({ offer, seen }: { offer: Offer; seen: (card: string) => number | null }): JSX.Element {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set())
  const selected = offer.cards.filter((card) => chosen.has(card))
  const confirm = (cards: string[]): void => openAction({ action: 'assign', cards, pool: offer.pool })
  const set = (cards: readonly string[], on: boolean): void => {
    const next = new Set(chosen)
    for (const card of cards) on ? next.add(card) : next.delete(card)
    setChosen(next)
  }
  const all = selected.length === offer.cards.length
  return (
    <Section title={t('Pool {pool}: {n} card waits|Pool {pool}: {n} cards wait', { pool: offer.pool, n: offer.cards.length })}
      aside={<PoolLink pool={offer.pool} />}>
      <div class="toolbar">
        <label class="check-line">
          <input type="checkbox" checked={all} ref={(box) => void (box && (box.indeterminate = !all && selected.length > 0))}
            onChange={() => set(offer.cards, !all)} />
          {t('Select all')}
        </label>
        <button type="button" class="primary" aria-disabled={!selected.length}
          onClick={() => selected.length && confirm(selected)}>
          {selected.length ? t('Confirm {n} selected card|Confirm {n} selected cards', { n: selected.length }) : t('Confirm the selected cards')}
        </button>
      </div>
      {offer.nodes.map(({ node, cards }) => (
        <fieldset key={node} class="offer">
          <legend><NodeName node={node} /> <Badge>{t('{n} card|{n} cards', { n: cards.length })}</Badge></legend>
          <ul>
            {cards.map((card) => (
              <li key={card.id}>
                <input type="checkbox" checked={chosen.has(card.id)} aria-label={t('Select {name}', { name: card.id })}
                  onChange={(event) => set([card.id], event.currentTarget.checked)} />
                <span class="offer-name"><CardLink card={card.id} /> <small class="muted">{card.product}</small></span>
                <small class="muted">{seen(card.id) ? <Age at={seen(card.id)} /> : ''}</small>
                <button type="button" class="small" aria-label={t('Confirm {name}', { name: card.id })}
                  onClick={() => confirm([card.id])}>{t('Confirm')}</button>
              </li>
            ))}
          </ul>
        </fieldset>
      ))}
    </Section>
  )
}
