{{/* A ServiceAccount with its cluster-wide rules and its rules in the namespace. */}}
{{- define "croupier.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "croupier.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels: {{ include "croupier.labels" . | nindent 4 }}
rules:
{{ .everywhere }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels: {{ include "croupier.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
- {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "croupier.labels" . | nindent 4 }}
rules:
{{ .here }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "croupier.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
- {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{/* Leader election, limited to the name of the Lease. (`create` cannot be limited to a name.) */}}
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
# Events.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* Rules of every process that runs a capacity manager. */}}
{{- define "croupier.ledgerRules" -}}
{{ if eq (include "croupier.capacityManager" .) "CRD" }}
# The ledger.
- apiGroups: [mps.nvidia.com]
  resources: [nodereservations]
  verbs: [get, list, watch, create, update, delete]
{{- else }}
# To migrate a stored ledger into memory.
- apiGroups: [mps.nvidia.com]
  resources: [nodereservations]
  verbs: [get, list, delete]
{{- end }}
# Reservations: status and finalizer; mirrors of placements.
- apiGroups: [mps.nvidia.com]
  resources: [reservations]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [mps.nvidia.com]
  resources: [reservations/status]
  verbs: [patch]
# Quotas and priorities of Reservations.
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
# Cards and their users. (patch: an annotation that makes a late Binding fail.)
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
# To requeue unschedulable pods: docs/scheduler.md.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [gpu.deckhouse.io]
  resources: [gpudevices, gpunodeinventories, gpupools]
  verbs: [list, watch]
# The condition Occupied of cards.
- apiGroups: [gpu.deckhouse.io]
  resources: [gpudevices/status]
  verbs: [patch]
{{ include "croupier.events" . }}
{{- end }}

{{/* The names of the ConfigMaps with the records of usage. */}}
{{- define "croupier.usageNames" -}}
[croupier-usage{{ range until 17 }}, croupier-usage-{{ printf "%02d" . }}{{ end }}]
{{- end }}

{{/* The records of usage. (`create` cannot be limited to names.) */}}
{{- define "croupier.usageRules" -}}
# The records of usage.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: {{ include "croupier.usageNames" . }}
  verbs: [get, update]
{{- end }}

{{/* Rules of an extender with the ledger in the API server: it records its placements. */}}
{{- define "croupier.extenderRules" -}}
- apiGroups: [mps.nvidia.com]
  resources: [nodereservations]
  verbs: [get, list, watch, update]
- apiGroups: [gpu.deckhouse.io]
  resources: [gpupools]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, patch]
{{ include "croupier.events" . }}
{{- end }}

{{/* One rule for several accounts: `here` in the namespace, or cluster-wide. */}}
{{- define "croupier.sharedRule" -}}
{{- $kind := ternary "Role" "ClusterRole" .here -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- if .here }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels: {{ include "croupier.labels" . | nindent 4 }}
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
  labels: {{ include "croupier.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ .name }}}
subjects:
{{- range .accounts }}
- {kind: ServiceAccount, name: {{ . }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}
