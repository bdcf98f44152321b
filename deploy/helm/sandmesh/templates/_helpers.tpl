{{- define "sandmesh.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sandmesh.labels" -}}
{{ include "sandmesh.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sandmesh.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sandmesh.secretName" -}}
{{ .Values.secret.existingSecret | default (printf "%s-secret" (include "sandmesh.name" .)) }}
{{- end }}

{{- define "sandmesh.tokenName" -}}
{{ .Values.adminToken.existingSecret | default (printf "%s-admin-token" (include "sandmesh.name" .)) }}
{{- end }}

{{- define "sandmesh.storeName" -}}
{{ .Values.store.existingSecret | default (printf "%s-store" (include "sandmesh.name" .)) }}
{{- end }}

{{- define "sandmesh.tlsName" -}}
{{ .Values.gateway.tls.existingSecret | default (printf "%s-tls" (include "sandmesh.name" .)) }}
{{- end }}

{{- define "sandmesh.image" -}}
image: {{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* What the pods of all services have. */}}
{{- define "sandmesh.pod" -}}
automountServiceAccountToken: false
# A Service named like a setting would otherwise become one: SANDMESH_GATEWAY_PORT.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sandmesh.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The environment of services that share the mesh's secret and store. */}}
{{- define "sandmesh.environment" -}}
- {name: HOME, value: /tmp}
- {name: SANDMESH_LOG_FORMAT, value: json}
- {name: SANDMESH_MESH_ID, value: {{ .Values.meshId | quote }}}
# Below what is mounted, which is root's: a service makes directories of its user's alone.
- {name: SANDMESH_STATE_DIRECTORY, value: /var/lib/sandmesh/own}
- {name: SANDMESH_RUNTIME_DIRECTORY, value: /run/sandmesh/own}
- name: SANDMESH_MESH_SECRET
  valueFrom: {secretKeyRef: {name: {{ include "sandmesh.secretName" . }}, key: secret}}
- name: SANDMESH_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "sandmesh.storeName" . }}, key: url}}
{{- end }}

{{- define "sandmesh.mounts" -}}
- {name: scratch, mountPath: /tmp, subPath: tmp}
- {name: scratch, mountPath: /run/sandmesh, subPath: run}
- {name: scratch, mountPath: /var/lib/sandmesh, subPath: state}
{{- end }}

{{/*
Probes of a service that listens at an address without TLS: it has started when it serves RPCs there, and where a method is named,
when that succeeds. From then on it is asked at the port of its metrics, which costs no process each time.
*/}}
{{- define "sandmesh.probes" -}}
startupProbe:
  exec: {command: {{ prepend (splitList " " .) "alive" | toJson }}}
  periodSeconds: 2
  timeoutSeconds: 10
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* A Secret's key that was made at the first install, or a new value. */}}
{{- define "sandmesh.kept" -}}
{{- $found := lookup "v1" "Secret" .namespace .name }}
{{- if and $found (index ($found.data | default dict) .key) }}{{ index $found.data .key }}
{{- else }}{{ .made | b64enc }}{{ end }}
{{- end }}
