{{- define "isobar.labels" -}}
app.kubernetes.io/name: isobar
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "isobar.selector" -}}
app.kubernetes.io/name: isobar
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}
{{- define "isobar.agentSelector" -}}
app.kubernetes.io/name: isobar
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}
{{- /* What of the configuration counts at a start alone. */ -}}
{{- define "isobar.config" -}}
cloudResourcePrefix: {{ .Values.cloudResourcePrefix | quote }}
cloudSyncInterval: {{ .Values.cloudSyncInterval }}
cloudSecurityGroupVisibility: {{ .Values.cloudSecurityGroupVisibility }}
leavePolicyStatus: {{ .Values.leavePolicyStatus }}
leaveExternalNodes: {{ .Values.leaveExternalNodes }}
controlPlane: {{ .Values.controlPlane.enabled }}
{{- if and (not .Values.controlPlane.enabled) (or .Values.controlPlane.agentNamespace .Values.controlPlane.takeOver) }}
{{- fail "controlPlane.agentNamespace, controlPlane.takeOver: there is nothing to tell agents of without controlPlane.enabled" }}
{{- end }}
agentNamespace: {{ .Values.controlPlane.agentNamespace | quote }}
{{- if and (not .Values.controlPlane.enabled) .Values.controlPlane.agentServers }}
{{- fail "controlPlane.agentServers: there is nothing to tell agents of without controlPlane.enabled" }}
{{- end }}
{{- with .Values.controlPlane.agentServers }}
agentServers: {{ toJson . }}
{{- end }}
takeOver: {{ .Values.controlPlane.takeOver }}
podNetwork: {{ .Values.podNetwork | quote }}
nodeNetwork: {{ .Values.nodeNetwork | quote }}
namespaces: {{ toJson .Values.namespaces }}
service:
  name: {{ .Values.services.api }}
webhookService:
  name: {{ .Values.services.webhook }}
logFormat: {{ .Values.logFormat }}
{{- end }}
{{- /* What of Secrets the console needs to speak to an OIDC provider. */ -}}
{{- define "isobar.oidcSecrets" -}}
{{- if and .Values.ports.console .Values.console.oidc.issuer }}
{{- with .Values.console.oidc.clientSecret }}
{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ required "console.oidc.clientSecret.key" .key }}, path: client-secret}]}
{{- end }}
{{- end }}
{{- with .Values.console.oidc.ca }}
{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ required "console.oidc.ca.key" .key }}, path: ca.crt}]}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
