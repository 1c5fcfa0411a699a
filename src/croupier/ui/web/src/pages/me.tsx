// Who I am, what I see, what I may do, and how the page looks.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { useGet } from '../answers.ts'
import { post } from '../api.ts'
import { Badge, Choice, Command, Empty, ErrorNote, Page, Section, Until } from '../components.tsx'
import { chooseLocale, chosenLocale, t } from '../i18n.ts'
import type { Locale } from '../i18n.ts'
import { keysEnabled, setKeysEnabled } from '../keys.tsx'
import { chooseTheme, theme } from '../theme.ts'
import type { Theme } from '../theme.ts'
import type { Me } from '../wire.ts'

function modeText(mode: Me['mode']): string {
  switch (mode) {
    case 'local': return t('your kubeconfig, on this machine')
    case 'bearer': return t('the token that the proxy passes on')
    case 'token': return t('a pasted token')
    case 'headers': return t('the headers of a trusted proxy')
  }
}

export function MePage(): JSX.Element {
  const answer = useGet<Me>('/api/v1/me')
  const me = answer.data
  return (
    <Page title={t('Who I am')}>
      <ErrorNote error={answer.error} />
      {!me && answer.asking && <Empty>{t('Loading …')}</Empty>}
      {me && <Person me={me} />}
      {me && <Sees me={me} />}
      {me && <May me={me} />}
      <Looks />
    </Page>
  )
}

function Person({ me }: { me: Me }): JSX.Element {
  const [error, setError] = useState('')
  const leave = (): void => {
    post('/logout', {}).then(() => location.assign('/login'), (failure: Error) => setError(failure.message))
  }
  return (
    <Section title={me.user} aside={me.mode === 'token' && <button type="button" onClick={leave}>{t('Sign out')}</button>}>
      <ErrorNote error={error} />
      <dl class="facts">
        <div><dt>{t('groups')}</dt><dd lang="en">{me.groups.length ? me.groups.join(', ') : t('none')}</dd></div>
        <div><dt>{t('known from')}</dt><dd>{modeText(me.mode)}</dd></div>
        {me.expires && <div><dt>{t('ends')}</dt><dd><Until at={me.expires} /></dd></div>}
      </dl>
    </Section>
  )
}

function Sees({ me }: { me: Me }): JSX.Element {
  const { everything, cards, namespaces } = me.sees
  return (
    <Section title={t('What I see')}>
      <ul class="plain">
        <li>{everything ? t('Everything: you may list NodeReservations.') : cards
          ? t('All cards and amounts: you may list GPUDevices.') : t('Cards of your own pods, and amounts of pools that are open to you.')}</li>
        <li>
          {namespaces === null ? t('Names of pods in every namespace.')
            : namespaces.length ? <>{t('Names of pods in these namespaces:')} <span lang="en">{namespaces.join(', ')}</span></>
              : t('No names of pods: you may list pods in no namespace.')}
        </li>
      </ul>
    </Section>
  )
}

function May({ me }: { me: Me }): JSX.Element {
  const kinds = [
    ['cards', t('Assign, unassign, drain, retire cards'), 'kubectl auth can-i patch gpudevices'],
    ['pools', t('Confirm pools and change their sharing'), 'kubectl auth can-i patch gpupools'],
    ['reservations', t('Release reservations'), 'kubectl auth can-i delete reservations'],
  ] as const
  return (
    <Section title={t('What I may do')}>
      <p>{t('The page writes as you: Kubernetes decides each time, and the preview shows its answer.')}</p>
      <ul class="plain may">
        {kinds.map(([kind, title, line]) => (
          <li key={kind}>
            <Badge kind={me.actions.includes(kind) ? 'ok' : 'mute'}>{me.actions.includes(kind) ? t('enabled here') : t('not enabled here')}</Badge>{' '}
            {title} <Command line={line} />
          </li>
        ))}
      </ul>
    </Section>
  )
}

function Looks(): JSX.Element {
  const [, again] = useState(0)
  const chosen = (act: () => void) => (): void => {
    act()
    again((count) => count + 1)
  }
  return (
    <Section title={t('This browser')}>
      <div class="looks">
        <Choice<Theme> label={t('Theme')} value={theme()} onChange={(choice) => chosen(() => chooseTheme(choice))()}
          options={[['system', t('as the system')], ['light', t('light')], ['dark', t('dark')]]} />
        <Choice<Locale> label={t('Language')} value={chosenLocale()} options={[['en', 'English'], ['ru', 'Русский']]}
          onChange={(choice) => {
            chooseLocale(choice)
            location.reload()
          }} />
        <Choice<'on' | 'off'> label={t('Single-key commands')} value={keysEnabled() ? 'on' : 'off'} options={[['on', t('on')], ['off', t('off')]]}
          onChange={(choice) => chosen(() => setKeysEnabled(choice === 'on'))()} />
      </div>
    </Section>
  )
}
