{{- define "ferromq.name" -}}
{{- printf "%s-operator" (.Release.Name | trunc 44 | trimSuffix "-") -}}
{{- end -}}

{{- define "ferromq.serviceAccount" -}}
{{- default (include "ferromq.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "ferromq.selector" -}}
app.kubernetes.io/name: ferromq-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ferromq.labels" -}}
{{ include "ferromq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The namespaces to watch, as a JSON list; empty for all. */}}
{{- define "ferromq.namespaces" -}}
{{- $all := list -}}
{{- range splitList "," (.Values.watchNamespace | default "") -}}
{{- with trim . -}}
{{- $all = append $all . -}}
{{- end -}}
{{- end -}}
{{- $all | uniq | toJson -}}
{{- end -}}

{{/* Every rule is a call that the operator makes; the code that makes it is named beside. */}}
{{- define "ferromq.rules" -}}
- apiGroups: [ferromq.io]
  resources: [brokerclusters]
  verbs: [get, list, watch]
- apiGroups: [ferromq.io]
  resources: [topics, consumergroups]
  # patch: the finalizer of one whose deletion policy is Delete
  verbs: [get, list, watch, patch]
- apiGroups: [ferromq.io]
  resources: [brokerclusters/status, topics/status, consumergroups/status]
  verbs: [patch]
- apiGroups: [ferromq.io]
  resources: [brokerclusters/finalizers]
  # owner references that block deletion, where the cluster enforces their permission
  verbs: [update]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  # delete: a group that was asked to leave and is read to its end
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  # the HTTP token of a cluster: made once, read, never listed
  verbs: [get, create]
- apiGroups: [""]
  resources: [pods]
  # delete: the operator restarts brokers itself, one at a time
  verbs: [list, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  # patch: a volume that grows
  verbs: [list, patch]
- apiGroups: [""]
  resources: [namespaces]
  # a Topic's finalizer gives way when its namespace goes
  verbs: [get]
{{- end -}}
