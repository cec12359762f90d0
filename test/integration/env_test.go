package integration

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const envObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, size: "12"}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Service
metadata: {name: db-main}
spec: {clusterIP: 10.96.77.77, selector: {app: none}, ports: [{name: sql, port: 5432}]}
`

// Environment variables can come from every kind of source, and $(VAR) is expanded in command, args and values.
func TestEnv(t *testing.T) {
	s := newSpace(t)
	s.apply(strings.Replace(envObjects, "10.96.77.77", "", 1))
	db := strings.TrimSpace(s.kubectl("get", "service", "db-main", "-o", "jsonpath={.spec.clusterIP}"))
	s.pod("env", `
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'env; echo "ARG0=$0 ARG1=$1"']
  args: ["$(COLOUR)-$(PLAIN)", "$$(PLAIN) $(UNKNOWN)"]
  resources: {requests: {cpu: 20m, memory: 16Mi}, limits: {memory: 32Mi}}
  envFrom:
  - configMapRef: {name: settings}
  - secretRef: {name: hidden}
    prefix: SEC_
  - configMapRef: {name: absent, optional: true}
  env:
  - {name: PLAIN, value: plain}
  - {name: DERIVED, value: "$(PLAIN)/$(size)/$$(PLAIN)/$(NOT_THERE)"}
  - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
  - {name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}
  - {name: MAYBE, valueFrom: {secretKeyRef: {name: hidden, key: none, optional: true}}}
  - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: UID_, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
  - {name: ANNOTATION, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
  - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
  - {name: CPU_REQ, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
  - {name: MEM_LIM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
  - {name: CPU_LIM, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}`,
		func(p *v1.Pod) { p.Annotations = map[string]string{"note": "a note"} })
	p := s.ended("env", v1.PodSucceeded)
	cpus := s.kubectl("get", "node", s.env.node.Name, "-o", "jsonpath={.status.allocatable.cpu}")
	out := s.logs("env")
	for _, want := range []string{
		"colour=blue", "size=12", "SEC_password=s3cret", "PLAIN=plain", "DERIVED=plain/12/$(PLAIN)/$(NOT_THERE)", "COLOUR=blue",
		"PASSWORD=s3cret", "POD=env", "NS=" + s.name, "UID_=" + string(p.UID), "LABEL=env", "ANNOTATION=a note", "NODE=" + s.env.node.Name,
		"ACCOUNT=default", "HOST_IP=" + p.Status.HostIP, "POD_IP=" + p.Status.PodIP, "POD_IPS=" + p.Status.PodIP, "CPU_REQ=20", "MEM_LIM=32",
		"CPU_LIM=" + cpus, "ARG0=blue-plain ARG1=$(PLAIN) $(UNKNOWN)",
		"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443",
		"DB_MAIN_SERVICE_HOST=" + db, "DB_MAIN_SERVICE_PORT=5432", "DB_MAIN_SERVICE_PORT_SQL=5432",
		"DB_MAIN_PORT=tcp://" + db + ":5432", "DB_MAIN_PORT_5432_TCP_PROTO=tcp", "HOSTNAME=env",
	} {
		if !strings.Contains("\n"+out, "\n"+want+"\n") {
			t.Errorf("environment lacks %s", want)
		}
	}
	// Keys of a ConfigMap that a shell does not accept as names become variables, too.
	s.pod("odd", "restartPolicy: Never\n"+`containers: [{name: main, image: $busybox, command: [env], envFrom: [{configMapRef: {name: odd}}]}]`)
	s.kubectl("create", "configmap", "odd", "--from-literal=not.a-name=odd")
	s.ended("odd", v1.PodSucceeded)
	s.contains("environment of odd", s.logs("odd"), "not.a-name=odd\n")
	if strings.Contains(out, "MAYBE=") {
		t.Error("an optional key that is absent is a variable")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// A pod waits until the ConfigMap that its environment refers to exists. Its status and an event say what is missing.
func TestEnvWaitsForObjects(t *testing.T) {
	s := newSpace(t)
	s.pod("waits", `
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'echo $COLOUR; sleep 1000']
  env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: later, key: colour}}}]`)
	s.until("waits", "waiting", func(p *v1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "CreateContainerConfigError" &&
			strings.Contains(c[0].State.Waiting.Message, `configmap "later" not found`)
	})
	s.contains("event", s.event("waits", "Failed").Message, `configmap "later" not found`)
	s.kubectl("create", "configmap", "later", "--from-literal=colour=green")
	s.ready("waits")
	s.logged("waits", "green\n")
}
