// Who held what when: a line per card of a pod, or per pod of a card.

import type { JSX } from 'preact'
import { useGet } from './answers.ts'
import { CardLink, Empty, ErrorNote, PodLink } from './components.tsx'
import { clock, dateTime, duration } from './format.ts'
import { t } from './i18n.ts'
import { now } from './model.ts'

interface HeldLine { card: string; pod: string; share: string | number; from: number; to: number | null }

const SHOWN = 40

// `query` is card=NAME or pod=NS/NAME; `by` is what each line is named after.
export function Gantt({ query, by }: { query: string; by: 'card' | 'pod' }): JSX.Element {
  const answer = useGet<HeldLine[]>(`/api/v1/history/lines?${query}`)
  if (answer.error) return <ErrorNote error={answer.error} />
  if (!answer.data) return <Empty>{t('Loading …')}</Empty>
  if (!answer.data.length) return <Empty>{t('The history has no record of it.')}</Empty>
  const lines = answer.data.slice(-SHOWN)
  const begin = Math.min(...lines.map((line) => line.from))
  const end = Math.max(now(), ...lines.map((line) => line.to ?? 0))
  const length = Math.max(1, end - begin)
  const rows = new Map<string, HeldLine[]>()
  for (const line of lines) rows.set(line[by], [...(rows.get(line[by]) ?? []), line])
  return (
    <div class="gantt">
      <ul>
        {[...rows].map(([name, parts]) => (
          <li key={name}>
            <div class="gantt-name">{by === 'card' ? <CardLink card={name} /> : <PodLink pod={name} />}</div>
            <div class="gantt-line">
              {parts.map((part) => {
                const text = t('{share}, from {from} to {to}, {length}', {
                  share: String(part.share), from: dateTime(part.from), to: part.to ? dateTime(part.to) : t('now'),
                  length: duration((part.to ?? now()) - part.from),
                })
                return (
                  <span key={part.from} class={part.to ? 'gantt-part' : 'gantt-part still'} role="img" aria-label={text} title={text}
                    style={{
                      left: `${(100 * (part.from - begin)) / length}%`,
                      width: `max(3px, ${(100 * ((part.to ?? end) - part.from)) / length}%)`,
                    }} />
                )
              })}
            </div>
          </li>
        ))}
      </ul>
      <p class="gantt-axis"><small>{begin > now() - 86400 ? clock(begin) : dateTime(begin)}</small><small>{t('now')}</small></p>
    </div>
  )
}
