{{/* An account, what it may do everywhere, and what it may do in our namespace: two lists of rules. */}}
{{- define "croupier.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/part-of: croupier}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels: {app.kubernetes.io/part-of: croupier}
rules:
{{ .everywhere }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels: {app.kubernetes.io/part-of: croupier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
- {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/part-of: croupier}
rules:
{{ .here }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/part-of: croupier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
- {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{/* Its own election, by the name of the Lease. (To create cannot be limited to a name.) */}}
{{- define "croupier.election" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ . }}]
  verbs: [get, update]
{{- end }}

{{- define "croupier.events" -}}
# What it tells people.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* What those need who keep the ledger, whichever book. */}}
{{- define "croupier.keeping" -}}
{{ if eq (include "croupier.book" .) "CRD" }}
# The ledger.
- apiGroups: [mps.nvidia.com]
  resources: [nodereservations]
  verbs: [get, list, watch, create, update, delete]
{{- else }}
# A ledger that was in the API server is carried into memory.
- apiGroups: [mps.nvidia.com]
  resources: [nodereservations]
  verbs: [get, list, delete]
{{- end }}
# Those who ask for a part of it: what is granted to them, their finalizer.
- apiGroups: [mps.nvidia.com]
  resources: [reservations]
  verbs: [get, list, watch, patch]
- apiGroups: [mps.nvidia.com]
  resources: [reservations/status]
  verbs: [patch]
# What the cards are and who uses them. (The patch: an annotation that makes a Binding fail which comes too late.)
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
# A pod that the scheduler lets sleep is woken: docs/scheduler.md.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [gpu.deckhouse.io]
  resources: [gpudevices, gpunodeinventories, gpupools]
  verbs: [list, watch]
# Who holds a card, told to those who wait for it to be free: the condition Occupied.
- apiGroups: [gpu.deckhouse.io]
  resources: [gpudevices/status]
  verbs: [patch]
{{ include "croupier.events" . }}
{{- end }}

{{/* What an extender needs that others keep the ledger for: it writes down whom it placed. */}}
{{- define "croupier.placing" -}}
- apiGroups: [mps.nvidia.com]
  resources: [nodereservations]
  verbs: [get, list, watch, update]
- apiGroups: [gpu.deckhouse.io]
  resources: [gpupools]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, patch]
{{- end }}

{{/* One right that several accounts have: `here` or everywhere. */}}
{{- define "croupier.shared" -}}
{{- $kind := ternary "Role" "ClusterRole" .here -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- if .here }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels: {app.kubernetes.io/part-of: croupier}
rules:
- {{ .rule }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- if .here }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels: {app.kubernetes.io/part-of: croupier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ .name }}}
subjects:
{{- range .accounts }}
- {kind: ServiceAccount, name: {{ . }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}
