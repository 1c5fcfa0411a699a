// The cluster as it was: a slider over everything that the process remembers.

import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useGet, useTick } from '../answers.ts'
import { Bar, Empty, ErrorNote, Field, Link, Page, PodLink, PoolLink, Section, Sentence } from '../components.tsx'
import { clock, dateTime, number } from '../format.ts'
import { t } from '../i18n.ts'
import { FleetMap } from '../map/map.tsx'
import { historyAt, useModel, viewHistory } from '../model.ts'
import { navigate, setQuery, useRoute } from '../router.ts'

interface Memory { begins: number | null; ends: number | null; marks: [number, number][] }

const FRAME = 700 // milliseconds between two pictures while playing

export function HistoryPage(): JSX.Element {
  const { query } = useRoute()
  const answer = useGet<Memory>('/api/v1/history', useTick(30))
  const asked = Number(query.get('at')) || null
  const [error, setError] = useState('')
  useEffect(() => {
    const timer = setTimeout(() => {
      viewHistory(asked).then(() => setError(''), (failure: Error) => setError(failure.message))
    }, 120)
    return () => clearTimeout(timer)
  }, [asked])
  const memory = answer.data
  const known = memory !== null && memory.begins !== null && memory.ends !== null && memory.ends > memory.begins
  return (
    <Page title={t('History')} lead={known && t('The server of this page remembers everything since {begin}.', { begin: dateTime(memory.begins) })}>
      <ErrorNote error={answer.error || error} />
      {!memory && answer.asking && <Empty>{t('Loading …')}</Empty>}
      {memory && !known && <Empty>{t('The server of this page remembers nothing yet. The first picture is kept within five minutes.')}</Empty>}
      {known && <Slider begins={memory.begins!} ends={memory.ends!} marks={memory.marks} at={asked} />}
      <Picture />
    </Page>
  )
}

interface SliderProps { begins: number; ends: number; marks: [number, number][]; at: number | null }

function Slider({ begins, ends, marks, at }: SliderProps): JSX.Element {
  const [playing, setPlaying] = useState(false)
  const first = Math.ceil(begins) // before it nothing is known
  const place = Math.round(Math.min(ends, Math.max(first, at ?? ends)))
  const step = Math.max(1, Math.round((ends - begins) / 288))
  const go = (next: number): void => setQuery({ at: next >= ends ? null : String(Math.round(Math.max(first, next))) })
  const latest = useRef(() => {})
  latest.current = () => (place + step >= ends ? setPlaying(false) : go(place + step))
  useEffect(() => {
    if (!playing) return
    const timer = setInterval(() => latest.current(), FRAME)
    return () => clearInterval(timer)
  }, [playing])
  const play = (): void => {
    if (!playing && place >= ends - step) go(first)
    setPlaying(!playing)
  }
  return (
    <Section title={at === null ? t('Now') : dateTime(place)} class="slider">
      <Marks begins={begins} ends={ends} marks={marks} at={place} />
      <Field label={t('Time')} hint={t('Arrow keys go step by step, Page Up and Page Down ten steps.')}>
        {(id) => (
          <input id={id} type="range" min={first} max={Math.ceil(ends)} step={step} value={place}
            aria-valuetext={at === null ? t('now') : dateTime(place)} onInput={(event) => go(Number(event.currentTarget.value))} />
        )}
      </Field>
      <div class="toolbar">
        <button type="button" onClick={() => go(place - step)} aria-label={t('One step back')}>◀</button>
        <button type="button" onClick={play} aria-pressed={playing}>{playing ? t('Pause') : t('Play')}</button>
        <button type="button" onClick={() => go(place + step)} aria-label={t('One step on')}>▶</button>
        <button type="button" class="primary" aria-disabled={at === null} onClick={() => setQuery({ at: null })}>{t('Back to now')}</button>
        <a href={`/api/v1/history.csv?from=${Math.floor(begins)}&to=${Math.ceil(ends)}`} download="croupier-history.csv">
          {t('Export as CSV')}
        </a>
      </div>
    </Section>
  )
}

function Marks({ begins, ends, marks, at }: Omit<SliderProps, 'at'> & { at: number }): JSX.Element {
  const most = Math.max(1, ...marks.map(([, count]) => count))
  const total = marks.reduce((sum, [, count]) => sum + count, 0)
  const left = (time: number): string => `${Math.max(0, Math.min(100, (100 * (time - begins)) / (ends - begins)))}%`
  return (
    <div class="marks" role="img" aria-label={t('{n} change per five minutes at most, {total} in all|{n} changes per five minutes at most, {total} in all', { n: most, total })}>
      {marks.map(([time, count]) => (
        <span key={time} title={`${clock(time)}: ${number(count)}`} style={{ left: left(time), height: `${6 + (94 * count) / most}%` }} />
      ))}
      <i style={{ left: left(at) }} />
    </div>
  )
}

const SHOWN = 12

// Map, waiting pods and pools as the model has them: then, or now.
function Picture(): JSX.Element {
  const model = useModel()
  const waiting = useMemo(() => [...model.waiting].slice(0, SHOWN), [model.versions.waiting, model.status])
  const pools = useMemo(() => [...model.pools].sort(([a], [b]) => (a < b ? -1 : 1)), [model.versions.pools, model.status])
  return (
    <>
      <Section title={t('Cards')}><FleetMap compact onOpen={(card) => navigate(`/cards/${encodeURIComponent(card)}`)} /></Section>
      <div class="columns">
        <Section title={t('Waiting pods')} aside={<small class="muted">{number(model.waiting.size)}</small>}>
          {!waiting.length && <Empty>{t('No pod waits for a card.')}</Empty>}
          <ul class="findings">
            {waiting.map(([pod, row]) => <li key={pod}><PodLink pod={pod} /> <Sentence text={row.sentence} /></li>)}
          </ul>
          {model.waiting.size > SHOWN && <Link to="/waiting">{t('and {n} more', { n: model.waiting.size - SHOWN })}</Link>}
        </Section>
        <Section title={t('Pools')} aside={<small class="muted">{number(pools.length)}</small>}>
          <ul class="pool-bars">
            {pools.map(([name, pool]) => (
              <li key={name}>
                <PoolLink pool={name} /> <Bar total={pool.total} used={pool.used} booked={pool.booked} />
                <small>{number(pool.used)} / {number(pool.total)}</small>
              </li>
            ))}
          </ul>
        </Section>
      </div>
    </>
  )
}

// On every page while the past is shown; mounted once by the frame.
export function HistoryBanner(): JSX.Element | null {
  const model = useModel()
  if (model.status !== 'history') return null
  const back = (): void => {
    if (location.pathname === '/history') setQuery({ at: null })
    else void viewHistory(null)
  }
  const at = historyAt() ?? model.at
  return (
    <div class="history-banner" role="status">
      <span>{t('You see the cluster as it was at {time}.', { time: dateTime(at) })}</span>{' '}
      {location.pathname !== '/history' && <Link to={`/history?at=${Math.round(at)}`}>{t('Change the time')}</Link>}
      <button type="button" onClick={back}>{t('Back to now')}</button>
    </div>
  )
}
